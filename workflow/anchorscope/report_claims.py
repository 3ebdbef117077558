"""The claims on the report: each with its verdicts, those on single datasets folded away."""

from collections.abc import Mapping
from html import escape

import polars as pl

from anchorscope.claims import EFFECTS
from anchorscope.report_tables import MINUS, between, table

EXPLAINED = """<p class="soft">Supported: the whole 95 % interval agrees with the claim. Contradicted: none of it does.
Undecided: anything else, also where the probe is no better than chance. Effects are in points of ΔP, under the honest
grouping (replicate).</p>"""
BESIDE = """<p class="soft">Published values were read from the figures and are good to about 10 points; measured ones
are from the rule flip, as there. A range spans datasets and layers.</p>"""


def claims_section(claims: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    """Every claim, its verdict for each model on all datasets, and below that for each dataset."""
    parts = [EXPLAINED]
    for number, statement in claims["statements"].items():
        rows = [row for row in claims["claims"] if row["claim"] == int(number)]
        if rows:
            parts.append(_claim(int(number), statement, rows, models, datasets))
    if claims["landmarks"]:
        parts += ["<h3>Published beside measured</h3>", BESIDE, table(_landmarks(claims["landmarks"], models))]
    return "\n".join(parts)


def _claim(number: int, statement: str, rows: list[dict], models: Mapping, datasets: Mapping) -> str:
    several = {row["model"] for row in rows if row["dataset"] is None}
    first = [row for row in rows if row["dataset"] is None or row["model"] not in several]
    others = [row for row in rows if row not in first]
    shown, folded = ("\n".join(_verdict(row, models, datasets) for row in some) for some in (first, others))
    if folded:
        folded = f"<details><summary>By dataset</summary>\n{folded}\n</details>"
    heading = f"{number}. {statement[:1].upper()}{statement[1:]}"
    return f"""<div class="claim"><h3>{escape(heading)}</h3>
<p class="soft">Effect: {escape(EFFECTS[number])}</p>
{shown}
{folded}</div>"""


def _verdict(row: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    model = " against ".join(models.get(name, name) for name in row["model"].split(" against "))
    dataset = "all datasets" if row["dataset"] is None else datasets.get(row["dataset"], row["dataset"])
    effect = row["because"]
    if row["effect"] is not None:
        value = f"{row['effect']:+.1f}".replace("-", MINUS)
        effect = f"{value}, 95 % interval {between(row['low'], row['high'])}"
    verdict = escape(row["verdict"])
    return (
        f'<div class="verdict"><span class="badge {verdict}">{verdict}</span><span>{escape(model)}, {escape(dataset)}'
        f'</span><span class="soft">{escape(effect)}</span></div>'
    )


def _landmarks(rows: list[dict], models: Mapping[str, str]) -> pl.DataFrame:
    agrees = {True: "yes", False: "no", None: None}
    return pl.DataFrame(
        [
            {
                "model": models.get(row["model"], row["model"]),
                "landmark": row["landmark"],
                "published": between(row["published_low"], row["published_high"], 0),
                "measured": between(row["measured_low"], row["measured_high"]),
                "layers": row["layers"],
                "agrees": agrees[row["agrees"]],
            }
            for row in rows
        ],
        infer_schema_length=None,
    )
