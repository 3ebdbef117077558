"""Claims and landmarks as a page of text."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from anchorscope.summarise.claims import EFFECTS, OF_EXPERIMENTS, STATEMENTS, Findings, JudgedClaim, Part
from anchorscope.summarise.numbers import signed, signed_between

_logits = partial(signed, decimals=2)


def claims_page(findings: Findings) -> str:
    """Markdown: what was found, one table per claim, and what the claims are to be read beside."""
    parts = ["# Claims", _bottom_lines(findings.bottom_line), findings.note, EXPLAINED]
    for number, statement in STATEMENTS.items():
        rows = [row for row in findings.claims if row.claim == number]
        if rows:
            table = _parts_table(rows) if number in OF_EXPERIMENTS else _claim_table(rows, EFFECTS[number])
            parts += [f"## {number}. {statement[0].upper()}{statement[1:]}", table]
    if findings.one_mechanism:
        parts += ["## What one mechanism would show", ONE_MECHANISM, _one_mechanism_table(findings.one_mechanism)]
    if findings.kinds:
        parts += ["## Two kinds of examples, or one", KINDS, _kinds_table(findings.kinds)]
    if findings.landmarks:
        parts += ["## Published landmarks", LANDMARKS, _landmark_table(findings.landmarks)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _bottom_lines(sentences: Mapping[str, str]) -> str:
    return "\n".join(f"- **{model}**: {sentence}" for model, sentence in sentences.items())


EXPLAINED = """Supported: the whole 95 % interval agrees with the claim. Contradicted: none of it does. Undecided:
anything else, also where the probe is no better than chance. ΔP in percentage points; groups by `replicate`, at the
layer plotted. Each claim is judged a second time by the change of the logit, with bounds 25 times smaller, because a
probability near 0 or 1 can hide a change. The first claim stands three times: as measured; *recentred*, without the
push that the knockout gives to all examples alike; and *residual*, also without the slope that is common to all, which
is a lower bound, because two kinds of examples make a part of that slope."""
LOGITS_TITLES = {"measured": "as measured", "recentred": "recentred", "residual": "residual"}
BEYOND = {True: "yes", False: "no", None: "–"}
ONE_MECHANISM = """A gap under `replicate` is a property of the examples, but not yet two kinds of them: a knockout that
shifts every logit along one line gives a gap, too. Here are its simulations, fitted to this run, beside the measured
gap, both as the mean over layers. Beyond: the measured interval lies wholly below that of the simulations, which is
stricter than a test at 5 %, so that what is not beyond is not thereby one mechanism. Beyond it, the shift is a property
of the example; whether of two kinds or by degrees, the next table says."""
KINDS = """Each example's logit under the knockout against its clean one: do the points lie around one curve or two, one
for examples that keep their evidence and a flat one for those that lose it? Four accounts predict held-out examples
under both prompts: one curve or two, each with what is left independent between the prompts, or correlated, because
examples also differ by degrees. The gain of kinds is how much better two curves predict than one, with degrees in both;
that of degrees, how much better one curve predicts with them. In nats per example, averaged over layers, each account
with those of normal and Student's tails that fit better, and 95 % intervals over subjects. All verdicts of a run
together call two kinds that are none with at most 5 %. The last column: the least share of lost examples, as far from
the others as on HotpotQA, that this many examples would have shown four times in five."""
LANDMARKS = """The published values were read from the figures and are good to about 10 points; the measured ones are
from the rule `flip`, as there. A range spans datasets and layers."""


def _table(titles: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in (titles, *rows)]
    return "\n".join([lines[0], "|---" * len(titles) + "|", *lines[1:]])


def _claim_table(rows: list[JudgedClaim], effect: str) -> str:
    def cells(row: JudgedClaim) -> tuple[object, ...]:
        names = (row.model, row.dataset or "all", LOGITS_TITLES[row.logits], row.verdict)
        if row.effect is None or row.low is None or row.high is None:
            return (*names, "–", row.because, in_logits(row))
        return (*names, signed(row.effect), signed_between(row.low, row.high), in_logits(row))

    return _table(("model", "dataset", "logits", "verdict", effect, "95 % interval", "in logits"), map(cells, rows))


def _parts_table(rows: list[JudgedClaim]) -> str:
    """An experiment's claim under both groupings, with every part of it."""
    titles = list(dict.fromkeys(part.title for row in rows for part in row.parts))

    def cells(row: JudgedClaim) -> tuple[object, ...]:
        by_title = {part.title: part_text(part) for part in row.parts}
        found = [by_title.get(title, "–") for title in titles] if row.parts else [row.because, *["–"] * len(titles)]
        return (row.model, row.dataset or "all", row.rule or "–", row.verdict, *found[: len(titles) or 1])

    return _table(("model", "dataset", "groups", "verdict", *titles), map(cells, rows))


def part_text(part: Part) -> str:
    """The effect of a part with its interval; a verdict that is not support stands out."""
    if part.effect is None:
        return "–"
    text = _logits if "popularity" in part.title else signed  # popularity is a logarithm, too
    ends = "" if part.low is None or part.high is None else f" ({text(part.low)} … {text(part.high)})"
    found = f"{text(part.effect)}{ends}"
    return found if part.verdict == "supported" else f"{found}, {part.verdict}"


def in_logits(row: JudgedClaim) -> str:
    """What the change of the logit says of a claim; a verdict that differs stands out."""
    other = row.in_logits
    if other is None or other.effect is None or other.low is None or other.high is None:
        return "–"
    found = f"{_logits(other.effect)} ({_logits(other.low)} … {_logits(other.high)})"
    return found if other.verdict == row.verdict else f"**{other.verdict}**: {found}"


def gain_text(row: dict, gain: str, decimals: int = 3) -> str:
    """A gain with its interval."""
    return f"{signed(row[gain], decimals)} ({signed_between(row[f'{gain}_low'], row[f'{gain}_high'], decimals)})"


def visible_share(row: dict) -> str:
    """The least share of kinds that could have been seen."""
    share = row["could_see_share"]
    return "more than a half" if share is None else f"{100 * share:.0f} %"


def _kinds_table(rows: list[dict]) -> str:
    lines: list[Sequence[object]] = []
    for row in rows:
        names = (row["model"], row["dataset"])
        gains = (gain_text(row, "kinds"), gain_text(row, "degrees"))
        lines.append((*names, row["n"], row["verdict"], *gains, visible_share(row)))
        for part in row["within"]:
            lines.append(
                (*names, part["n"], f"{part['verdict']}, within {part['among']}", "–", "–", visible_share(part))
            )
    return _table(("model", "dataset", "n", "verdict", "gain of kinds", "gain of degrees", "could see"), lines)


def _one_mechanism_table(rows: list[dict]) -> str:
    titles = ("model", "dataset", "logits", "gap", "95 % interval", "one mechanism", "95 % of simulations", "beyond")
    return _table(
        titles,
        (
            (
                *(row["model"], row["dataset"], LOGITS_TITLES[row["logits"]]),
                *(signed(row["area"]), signed_between(row["area_low"], row["area_high"])),
                *(signed(row["area_null"]), signed_between(row["area_null_low"], row["area_null_high"])),
                BEYOND[row["beyond"]],
            )
            for row in rows
        ),
    )


def _landmark_table(rows: list[dict]) -> str:
    def cells(row: dict) -> tuple[object, ...]:
        published, layers = _range(row["published_low"], row["published_high"]), row["layers"] or "–"
        if row["measured_low"] is None:
            return (row["model"], row["landmark"], published, "not measured", layers, "–")
        measured = _range(row["measured_low"], row["measured_high"])
        return (row["model"], row["landmark"], published, measured, layers, "yes" if row["agrees"] else "no")

    return _table(("model", "landmark", "published", "measured", "layers", "agrees"), map(cells, rows))


def _range(low: float, high: float) -> str:
    return signed(low) if signed(low) == signed(high) else signed_between(low, high)
