"""The claims on the report: each with its verdicts, those on single datasets folded away."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from anchorscope.report.numbers import between, signed
from anchorscope.report.rendering import render
from anchorscope.report.tables import named
from anchorscope.summarise.claims import EFFECTS
from anchorscope.summarise.claims_page import BEYOND, EXPLAINED, LANDMARKS, ONE_MECHANISM


@dataclass(frozen=True)
class Verdict:
    """What a claim comes to for one model, on one dataset or on all."""

    verdict: str
    subject: str  # the titles of model and dataset
    effect: str  # with its interval, or why there is none


@dataclass(frozen=True)
class Claim:
    """A claim with its verdicts."""

    number: int
    statement: str
    effect: str  # what is measured
    verdicts: list[Verdict]
    by_dataset: list[Verdict]


def claims_section(claims: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> Markup:
    """Every claim, its verdict for each model on all datasets, and below that for each dataset."""
    statements = {int(number): statement for number, statement in claims["statements"].items()}
    rows = {number: [row for row in claims["claims"] if row["claim"] == number] for number in statements}
    one_mechanism, landmarks = (
        named(frame(claims[name]), models, datasets) if claims[name] else None
        for name, frame in (("one_mechanism", _one_mechanism), ("landmarks", _landmarks))
    )
    return render(
        "claims.html",
        explained=EXPLAINED,
        claims=[
            _claim(number, statements[number], rows=some, models=models, datasets=datasets)
            for number, some in rows.items()
            if some
        ],
        one_mechanism=one_mechanism,
        one_mechanism_explained=ONE_MECHANISM,
        landmarks=landmarks,
        landmarks_explained=LANDMARKS,
    )


def _claim(
    number: int, statement: str, rows: list[dict], models: Mapping[str, str], datasets: Mapping[str, str]
) -> Claim:
    on_all = {row["model"] for row in rows if row["dataset"] is None}
    first = [row for row in rows if row["dataset"] is None or row["model"] not in on_all]
    others = [row for row in rows if row not in first]
    return Claim(
        number=number,
        statement=f"{statement[:1].upper()}{statement[1:]}",
        effect=EFFECTS[number],
        verdicts=[_verdict(row, models, datasets) for row in first],
        by_dataset=[_verdict(row, models, datasets) for row in others],
    )


def _verdict(row: Mapping, models: Mapping[str, str], datasets: Mapping[str, str]) -> Verdict:
    model = " against ".join(models.get(name, name) for name in row["model"].split(" against "))
    dataset = "all datasets" if row["dataset"] is None else datasets.get(row["dataset"], row["dataset"])
    effect = row["because"]
    if row["effect"] is not None:
        effect = f"{signed(row['effect'])}, 95 % interval {between(row['low'], row['high'])}"
    return Verdict(row["verdict"], f"{model}, {dataset}", effect)


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
