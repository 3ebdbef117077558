"""The claims on the report: each with its verdicts, those on single datasets folded away."""

from collections.abc import Mapping
from functools import partial

import polars as pl
from markupsafe import Markup

from anchorscope.experiments.catalogue import EVERY_CLAIM
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, named
from anchorscope.summarise.claims import CLAIMS, Claim, Part
from anchorscope.summarise.claims_page import (
    ABOUT_KINDS,
    ABOUT_ONE_MECHANISM,
    EXPLAINED,
    LANDMARKS,
    LOGITS_TITLES,
    kinds_rows,
    landmark_rows,
    one_mechanism_rows,
    part_text,
)
from anchorscope.summarise.findings import QUALITIES
from anchorscope.summarise.wording import between, signed, with_ends


def claims_section(claims: Mapping, models: Titles, datasets: Titles) -> Markup:
    """Every claim, its verdict for each model on all datasets, and below that for each dataset."""
    judged = [one_claim(one, claims["claims"], models, datasets) for one in EVERY_CLAIM]
    kinds = pl.DataFrame(kinds_rows(claims["kinds"])).rename({"n": "examples"}, strict=False)
    tables = {
        "one_mechanism": pl.DataFrame(one_mechanism_rows(claims["one_mechanism"], float, between)),
        "kinds": kinds.with_columns(pl.col("^verdict$").str.replace_all("_", " ")),
        "told_apart": _told_apart(claims["kinds"]),
        "landmarks": pl.DataFrame(
            landmark_rows(claims["landmarks"], partial(between, decimals=0), between), infer_schema_length=None
        ),
    }
    return render(
        "claims.html",
        explained=EXPLAINED,
        claims=[one for one in judged if one["verdicts"]],
        one_mechanism_explained=ABOUT_ONE_MECHANISM,
        kinds_explained=ABOUT_KINDS,
        landmarks_explained=LANDMARKS,
        **{name: None if table.is_empty() else named(table, models, datasets) for name, table in tables.items()},
    )


def one_claim(claim: Claim, judged: list[dict], models: Titles, datasets: Titles) -> dict:
    """A claim, of all that are `judged`, with its verdicts for each model on all datasets, and on each."""
    rows = [row for row in judged if row["claim"] == claim.number]
    on_all = {row["model"] for row in rows if row["dataset"] is None}
    first = [row for row in rows if row["dataset"] is None or row["model"] not in on_all]
    others = [row for row in rows if row not in first]
    verdicts, by_dataset = ([_verdict(row, models, datasets) for row in some] for some in (first, others))
    return {"claim": claim, "verdicts": verdicts, "by_dataset": by_dataset}


def _verdict(row: Mapping, models: Titles, datasets: Titles) -> dict[str, str | None]:
    """What a claim comes to for one model, on one dataset or on all; `in_logits` only where that is another verdict."""
    model = " against ".join(models.get(name, name) for name in row["model"].split(" against "))
    dataset = "all datasets" if row["dataset"] is None else datasets.get(row["dataset"], row["dataset"])
    effect = row["because"]
    if row["effect"] is not None:
        effect = f"{signed(row['effect'])}, 95 % interval {between(row['low'], row['high'])}"
    about = f"{model}, {dataset}"
    if row["claim"] == CLAIMS["below"].number:
        about = f"{about}, {LOGITS_TITLES[row['logits']]}"
    if row.get("parts"):
        effect = "; ".join(f"{part['title']} {part_text(Part(**part))}" for part in row["parts"])
        about = f"{about}, {row['rule']}" if row["rule"] else about
    other = row["in_logits"]["verdict"] if row["in_logits"] else row["verdict"]
    in_logits = None if other == row["verdict"] else other
    return {"verdict": row["verdict"], "subject": about, "effect": effect, "in_logits": in_logits}


def _told_apart(rows: list[dict]) -> pl.DataFrame:
    """What tells the kinds apart: how many of each value are of the lost kind, or how well a number tells."""

    def told(one: dict) -> str:
        if one["auc"] is not None:
            return f"AUC {with_ends(one, 'auc', 2)}"
        share, low, high = (100 * one[f"share_lost{end}"] for end in ("", "_low", "_high"))
        return f"{share:.0f} % lost ({between(low, high, 0)})"

    return pl.DataFrame(
        [
            {
                "model": row["model"],
                "dataset": row["dataset"],
                "by": QUALITIES[one["quality"]],
                "value": one["value"],
                "examples": one["n"],
                "tells": told(one),
            }
            for row in rows
            for one in row["told_apart"]
        ],
        infer_schema_length=None,
    )
