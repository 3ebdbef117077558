"""The claims on the report: each with its verdicts, those on single datasets folded away."""

import re
from collections.abc import Mapping
from html import escape

import polars as pl

from anchorscope.report.tables import MINUS, between, named, table
from anchorscope.summarise.claims import EFFECTS
from anchorscope.summarise.claims_page import BEYOND, EXPLAINED, LANDMARKS, ONE_MECHANISM


def claims_section(claims: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> str:
    """Every claim, its verdict for each model on all datasets, and below that for each dataset."""
    parts = [_prose(EXPLAINED)]
    for number, statement in claims["statements"].items():
        rows = [row for row in claims["claims"] if row["claim"] == int(number)]
        if rows:
            parts.append(_claim(int(number), statement, rows, models, datasets))
    if claims["one_mechanism"]:
        beside = named(_one_mechanism(claims["one_mechanism"]), models, datasets)
        parts += ["<h3>What one mechanism would show</h3>", _prose(ONE_MECHANISM), table(beside)]
    if claims["landmarks"]:
        beside = named(_landmarks(claims["landmarks"]), models, datasets)
        parts += ["<h3>Published landmarks</h3>", _prose(LANDMARKS), table(beside)]
    return "\n".join(parts)


def _prose(text: str) -> str:
    """A paragraph of the claims' page of text, as HTML."""
    html = re.sub("`(.*?)`", r"<code>\1</code>", escape(text))
    return f'<p class="soft">{html}</p>'


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


def _one_mechanism(rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "model": row["model"],
                "dataset": row["dataset"],
                "gap": row["area"],
                "95 % interval": between(row["area_low"], row["area_high"]),
                "one mechanism": row["area_null"],
                "95 % of simulations": between(row["area_null_low"], row["area_null_high"]),
                "beyond": BEYOND[row["beyond"]],
            }
            for row in rows
        ]
    )


def _landmarks(rows: list[dict]) -> pl.DataFrame:
    agrees = {True: "yes", False: "no", None: None}
    return pl.DataFrame(
        [
            {
                "model": row["model"],
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
