"""Claims, kinds and landmarks as a page of text, and the rows of its tables, which the report shows, too."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from anchorscope.summarise.claims import CLAIMS, Claim, Findings, JudgedClaim, Part
from anchorscope.summarise.wording import number_text, signed, signed_between, with_ends, with_interval

Row = Mapping[str, object]  # cells by the titles of their columns
Ends = Callable[[float, float], str]
EXPLAINED = """Supported: the whole 95 % interval agrees with the claim. Contradicted: none of it does. Undecided:
anything else, also where the probe is no better than chance. ΔP in percentage points; groups by `honest`, at the
layer plotted. Each claim is judged a second time by the change of the logit, with bounds 25 times smaller, because a
probability near 0 or 1 can hide a change. The first claim stands three times: as measured; `recentred`, without the
push that the knockout gives to all examples alike; and `residual`, also without the slope that is common to all, which
is a lower bound, because two kinds of examples make a part of that slope."""
LOGITS_TITLES = {"measured": "as measured", "recentred": "recentred", "residual": "residual"}
YES_NO = {True: "yes", False: "no", None: "–"}
ABOUT_ONE_MECHANISM = """A gap under `honest` is a property of the examples, but not yet two kinds of them: a knockout
that shifts every logit along one line gives a gap, too. Here are its simulations, fitted to this run, beside the
measured gap, both as the mean over layers. Beyond: the measured interval lies wholly below that of the simulations,
which is stricter than a test at 5 %, so that what is not beyond is not thereby one mechanism. Beyond it, the shift is a
property of the example; whether of two kinds or by degrees, the next table says."""
ABOUT_KINDS = """Each example's logit under the knockout against its clean one: do the points lie around one curve or
two, one for examples that keep their evidence and a flat one for those that lose it? Four accounts predict held-out
examples under both prompts: one curve or two, each with what is left independent between the prompts, or correlated,
because examples also differ by degrees. The gain of kinds is how much better two curves predict than one, with degrees
in both; that of degrees, how much better one curve predicts with them. In nats per example, averaged over layers, each
account with those of normal and Student's tails that fit better, and 95 % intervals over subjects. All verdicts of a
run together call two kinds that are none with at most 5 %. The last column: the least share of lost examples, as far
from the others as on HotpotQA, that this many examples would have shown four times in five."""
LANDMARKS = """The published values were read from the figures and are good to about 10 points; the measured ones are
from the rule `flip`, as there. A range spans datasets and layers."""
IN_PERCENT = ", %"  # ends the title of a part that is a share


def _range(low: float | None, high: float | None) -> str:
    """An interval with signs, or the one number that it comes to."""
    if low is None or high is None:
        return "not measured"
    return signed(low) if signed(low) == signed(high) else signed_between(low, high)


def claims_page(findings: Findings, claims: Iterable[Claim]) -> str:
    """Markdown: what was found, one table per claim, and what the claims are to be read beside."""
    bottom_lines = "\n".join(f"- **{model}**: {sentence}" for model, sentence in findings.bottom_line.items())
    parts = ["# Claims", bottom_lines, findings.note, EXPLAINED]
    for claim in claims:
        rows = [row for row in findings.claims if row.claim == claim.number]
        if rows:
            table = _claim_table(rows, claim.effect) if claim.name in CLAIMS else _parts_table(rows)
            parts += [f"## {claim.number}. {claim.statement[0].upper()}{claim.statement[1:]}", table]
    for title, explained, beside in (
        ("What one mechanism would show", ABOUT_ONE_MECHANISM, one_mechanism_rows(findings.one_mechanism)),
        ("Two kinds of examples, or one", ABOUT_KINDS, kinds_rows(findings.kinds)),
        ("Published landmarks", LANDMARKS, landmark_rows(findings.landmarks)),
    ):
        if beside:
            parts += [f"## {title}", explained, markdown_table(list(beside[0]), beside)]
    return "\n\n".join(filter(None, parts)) + "\n"


def markdown_table(titles: Sequence[str], rows: Sequence[Row]) -> str:
    """What a row has nothing for is a dash; what has no title stands behind the others."""
    cells = [titles, *({**dict.fromkeys(titles), **row}.values() for row in rows)]
    lines = [f"| {' | '.join(map(number_text, some))} |" for some in cells]
    return "\n".join([lines[0], "|---" * len(titles) + "|", *lines[1:]])


def _claim_table(judged: list[JudgedClaim], effect: str) -> str:
    rows: list[Row] = [
        {
            **{"model": row.model, "dataset": row.dataset or "all", "logits": LOGITS_TITLES[row.logits]},
            "verdict": row.verdict,
            effect: None if row.effect is None else signed(row.effect),
            "95 % interval": row.because if row.effect is None else signed_between(row.low, row.high),
            "in logits": in_logits(row),
        }
        for row in judged
    ]
    return markdown_table(list(rows[0]), rows)


def _parts_table(judged: list[JudgedClaim]) -> str:
    """An experiment's claim under both groupings, with every part of it, or why there is none."""
    titles = list(dict.fromkeys(part.title for row in judged for part in row.parts))
    first = titles[0] if titles else ""
    rows = [
        {
            **{"model": row.model, "dataset": row.dataset or "all", "groups": row.rule, "verdict": row.verdict},
            **({part.title: part_text(part) for part in row.parts} or {first: row.because}),
        }
        for row in judged
    ]
    return markdown_table(["model", "dataset", "groups", "verdict", *titles], rows)


def decimals_of(title: str) -> int:
    """How many decimal places the effect of a part has: popularity is a logarithm."""
    return 2 if "popularity" in title else 1


def effect_text(title: str, effect: float) -> str:
    """The effect of a part: a share in percent where its title says so, else a difference with its sign."""
    return f"{effect:.0f} %" if title.endswith(IN_PERCENT) else signed(effect, decimals_of(title))


def part_text(part: Part) -> str:
    """The effect of a part with its interval; a verdict that is not support stands out."""
    if part.effect is None:
        return "–"
    found = effect_text(part.title, part.effect)
    if part.low is not None:
        found = f"{found} ({signed_between(part.low, part.high, decimals_of(part.title))})"
    return found if part.verdict == "supported" else f"{found}, {part.verdict}"


def in_logits(row: JudgedClaim) -> str | None:
    """What the change of the logit says of a claim; a verdict that differs stands out."""
    if row.in_logits is None or row.in_logits["effect"] is None:
        return None
    found = with_interval(row.in_logits["effect"], row.in_logits["low"], row.in_logits["high"], 2, signed)
    verdict = row.in_logits["verdict"]
    return found if verdict == row.verdict else f"**{verdict}**: {found}"


def one_mechanism_rows(
    rows: list[dict], number: Callable[[float], object] = signed, ends: Ends = signed_between
) -> list[Row]:
    """The gap beside what one mechanism would show; the report has other ways to write `number` and `ends`."""
    return [
        {
            **{"model": row["model"], "dataset": row["dataset"], "logits": LOGITS_TITLES[row["logits"]]},
            "gap": number(row["area"]),
            "95 % interval": ends(row["area_low"], row["area_high"]),
            "one mechanism": number(row["area_null"]),
            "95 % of simulations": ends(row["area_null_low"], row["area_null_high"]),
            "beyond": YES_NO[row["beyond"]],
        }
        for row in rows
    ]


def kinds_rows(rows: list[dict]) -> list[Row]:
    """The verdict on each model and dataset, and those within forms."""
    found: list[Row] = []
    for row in rows:
        names = {"model": row["model"], "dataset": row["dataset"]}
        gains = {f"gain of {gain}": with_ends(row, gain, 3, signed) for gain in ("kinds", "degrees")}
        found.append({**names, "n": row["n"], "verdict": row["verdict"], **gains, "could see": _visible_share(row)})
        for part in row["within"]:
            verdict = f"{part['verdict']}, within {part['among']}"
            found.append({**names, "n": part["n"], "verdict": verdict, "could see": _visible_share(part)})
    return found


def _visible_share(row: dict) -> str:
    """The least share of kinds that could have been seen."""
    share = row["could_see_share"]
    return "more than a half" if share is None else f"{100 * share:.0f} %"


def landmark_rows(rows: list[dict], published: Ends = _range, measured: Ends = _range) -> list[Row]:
    """What was published beside what was measured."""
    return [
        {
            **{"model": row["model"], "landmark": row["landmark"]},
            "published": published(row["published_low"], row["published_high"]),
            "measured": measured(row["measured_low"], row["measured_high"]),
            "layers": row["layers"],
            "agrees": YES_NO[row["agrees"]],
        }
        for row in rows
    ]
