"""Claims and landmarks as a page of text."""

from anchorscope.summarise.claims import EFFECTS, STATEMENTS, Findings, JudgedClaim


def claims_page(findings: Findings) -> str:
    """Markdown: one table per claim, what one mechanism would give, and published landmarks beside measured ones."""
    parts = ["# Claims", findings.note, EXPLAINED]
    for number, statement in STATEMENTS.items():
        rows = [row for row in findings.claims if row.claim == number]
        if rows:
            parts += [f"## {number}. {statement[0].upper()}{statement[1:]}", _claim_table(rows, EFFECTS[number])]
    if findings.one_mechanism:
        parts += ["## What one mechanism would show", ONE_MECHANISM, _one_mechanism_table(findings.one_mechanism)]
    if findings.landmarks:
        parts += ["## Published landmarks", LANDMARKS, _landmark_table(findings.landmarks)]
    return "\n\n".join(filter(None, parts)) + "\n"


EXPLAINED = """Supported: the whole 95 % interval agrees with the claim. Contradicted: none of it does. Undecided:
anything else, also where the probe is no better than chance. ΔP in percentage points; groups by `replicate`."""
BEYOND = {True: "yes", False: "no", None: "–"}
ONE_MECHANISM = """A gap under `replicate` is a property of the examples, but not yet two kinds of them: a knockout that
shifts every logit along one line gives a gap, too. Here are its simulations, fitted to this run, beside the measured
gap, both as the mean over layers. Beyond: the measured interval lies wholly below that of the simulations, which is
stricter than a test at 5 %, so that what is not beyond is not thereby one mechanism. Beyond it, the shift is a property
of the example; whether of two kinds or by degrees, the dip and the mixture in `kinds` say."""
LANDMARKS = """The published values were read from the figures and are good to about 10 points; the measured ones are
from the rule `flip`, as there. A range spans datasets and layers."""


def _claim_table(rows: list[JudgedClaim], effect: str) -> str:
    lines = [f"| model | dataset | verdict | {effect} | 95 % interval |", "|---|---|---|---|---|"]
    for row in rows:
        value, ends = "–", row.because
        if row.effect is not None and row.low is not None and row.high is not None:
            value, ends = _points(row.effect), f"{_points(row.low)} … {_points(row.high)}"
        lines.append(f"| {row.model} | {row.dataset or 'all'} | {row.verdict} | {value} | {ends} |")
    return "\n".join(lines)


def _one_mechanism_table(rows: list[dict]) -> str:
    lines = [
        "| model | dataset | gap | 95 % interval | one mechanism | 95 % of simulations | beyond |",
        "|---" * 7 + "|",
    ]
    for row in rows:
        gap, null = (
            f"{_points(row[name])} | {_points(row[f'{name}_low'])} … {_points(row[f'{name}_high'])}"
            for name in ("area", "area_null")
        )
        lines.append(f"| {row['model']} | {row['dataset']} | {gap} | {null} | {BEYOND[row['beyond']]} |")
    return "\n".join(lines)


def _landmark_table(rows: list[dict]) -> str:
    lines = ["| model | landmark | published | measured | layers | agrees |", "|---|---|---|---|---|---|"]
    for row in rows:
        published = _range(row["published_low"], row["published_high"])
        if row["measured_low"] is None:
            measured, verdict = "not measured", "–"
        else:
            measured, verdict = _range(row["measured_low"], row["measured_high"]), "yes" if row["agrees"] else "no"
        layers = row["layers"] or "–"
        lines.append(f"| {row['model']} | {row['landmark']} | {published} | {measured} | {layers} | {verdict} |")
    return "\n".join(lines)


def _range(low: float, high: float) -> str:
    return _points(low) if _points(low) == _points(high) else f"{_points(low)} … {_points(high)}"


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")
