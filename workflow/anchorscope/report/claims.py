"""The claims on the report: a table for each model, verdicts on single datasets folded away."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import polars as pl
from markupsafe import Markup

from anchorscope.experiments.catalogue import EVERY_CLAIM
from anchorscope.probe.anchor_rules import HONEST
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, named
from anchorscope.summarise.claims import AGAINST, CLAIMS, Claim
from anchorscope.summarise.claims_page import (
    ABOUT_KINDS,
    ABOUT_ONE_MECHANISM,
    EXPLAINED,
    IN_PERCENT,
    LANDMARKS,
    LOGITS_TITLES,
    decimals_of,
    effect_text,
    kinds_rows,
    landmark_rows,
    one_mechanism_rows,
)
from anchorscope.summarise.findings import QUALITIES
from anchorscope.summarise.wording import between, with_ends


def claims_section(claims: Mapping, models: Titles, datasets: Titles) -> Markup:
    """A table of claims for each model, and below what to read beside them."""
    examples = {(row["model"], row["dataset"]): row["n"] for row in claims["kinds"]}
    judged = {
        title: model_claims(claims["claims"], model, examples, models, datasets) for model, title in models.items()
    }
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
        models={title: some for title, some in judged.items() if some},
        one_mechanism_explained=ABOUT_ONE_MECHANISM,
        kinds_explained=ABOUT_KINDS,
        landmarks_explained=LANDMARKS,
        **{name: None if table.is_empty() else named(table, models, datasets) for name, table in tables.items()},
    )


def model_claims(
    judged: Sequence[Mapping], model: str, examples: Mapping[tuple[str, str], int], models: Titles, datasets: Titles
) -> list[dict]:
    """The claims about a model with their lines on all datasets, and on each; `examples` counts those of each pair."""
    own = [row for row in judged if row["model"].split(AGAINST)[0] == model]
    found = []
    for claim in EVERY_CLAIM:
        rows = [row for row in own if row["claim"] == claim.number]
        whole = whole_rows(rows)
        lines, by_dataset = (
            with_bars([line for row in some for line in _lines(row, examples, models, datasets)])
            for some in (whole, [row for row in rows if row not in whole])
        )
        if rows:
            found.append({"claim": claim, "lines": lines, "by_dataset": by_dataset})
    return found


def whole_rows(rows: Sequence[Mapping]) -> list[Mapping]:
    """Of some verdicts, those on all datasets of a model; where it has one dataset, that is all of them."""
    over_all = {row["model"] for row in rows if row["dataset"] is None}
    return [row for row in rows if row["dataset"] is None or row["model"] not in over_all]


def with_bars(lines: list[dict]) -> list[dict]:
    """The same lines, with the ends of their intervals, and the effects, on a common scale: zero at 50, up to 98."""
    reach = max((abs(end) for line in lines for end in line["ends"]), default=0.0) or 1.0
    return [line | {"bar": [round(50 + 48 * end / reach, 1) for end in line["ends"]]} for line in lines]


def _lines(
    row: Mapping, examples: Mapping[tuple[str, str], int], models: Titles, datasets: Titles
) -> Iterator[dict[str, object]]:
    """The lines of a verdict: one for each part of a claim that has several, else one."""
    about = [datasets.get(row["dataset"], row["dataset"])] if row["dataset"] else []
    about += [f"against {models.get(other, other)}" for other in row["model"].split(AGAINST)[1:]]
    about += [LOGITS_TITLES[row["logits"]]] if row["claim"] == CLAIMS["below"].number else []
    about += [row["rule"]] if row.get("parts") and row["rule"] else []
    counts = [
        n for (model, dataset), n in examples.items() if row["model"] == model and row["dataset"] in (None, dataset)
    ]
    other = row["in_logits"]["verdict"] if row["in_logits"] else row["verdict"]
    for part in row.get("parts") or [{**row, "title": ""}]:
        decimals = decimals_of(part["title"])
        yield {
            "about": ", ".join(about),
            "part": part["title"].removesuffix(IN_PERCENT),
            "verdict": part["verdict"],
            "in_logits": None if other == row["verdict"] else other,
            "ends": [end for end in (part["low"], part["effect"], part["high"]) if end is not None],
            "text": row.get("because") if part["effect"] is None else effect_text(part["title"], part["effect"]),
            "interval": None if part["low"] is None else between(part["low"], part["high"], decimals),
            "examples": sum(counts) or None,
        }


def experiment_verdicts(claim: Claim, judged: Sequence[Mapping], models: Titles) -> str:
    """A sentence on what an experiment's claim comes to for each model; by the honest rule where it has groups."""
    rows = [row for row in judged if row["claim"] == claim.number and row["rule"] in (HONEST, None)]
    verdicts: dict[str, list[str]] = {}
    for row in whole_rows(rows):
        verdicts.setdefault(row["verdict"], []).append(models.get(row["model"], row["model"]))
    said = "; ".join(f"{verdict} for {' and '.join(dict.fromkeys(some))}" for verdict, some in verdicts.items())
    return f"Claim {claim.number}, {claim.statement}: {said or 'not judged'}."


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
