"""The claims on the report: each with its verdicts, those on single datasets folded away."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from markupsafe import Markup

from anchorscope.report.rendering import render
from anchorscope.report.tables import named
from anchorscope.summarise.bottom_line import GAP_CLAIM, QUALITIES
from anchorscope.summarise.claims import EFFECTS, Part
from anchorscope.summarise.claims_page import (
    BEYOND,
    EXPLAINED,
    KINDS,
    LANDMARKS,
    LOGITS_TITLES,
    ONE_MECHANISM,
    gain_text,
    part_text,
    visible_share,
)
from anchorscope.summarise.numbers import between, signed


@dataclass(frozen=True)
class Verdict:
    """What a claim comes to for one model, on one dataset or on all."""

    verdict: str
    subject: str  # the titles of model and dataset
    effect: str  # with its interval, or why there is none
    in_logits: str | None  # where the change of the logit gives another verdict


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
    one_mechanism, kinds, told_apart, landmarks = (
        named(frame(rows), models, datasets) if rows else None
        for rows, frame in (
            (claims["one_mechanism"], _one_mechanism),
            (claims["kinds"], _kinds),
            ([row for row in claims["kinds"] if row["told_apart"]], _told_apart),
            (claims["landmarks"], _landmarks),
        )
    )
    return render(
        "claims.html",
        explained=EXPLAINED,
        claims=[
            one_claim(number, statements[number], rows=some, models=models, datasets=datasets)
            for number, some in rows.items()
            if some
        ],
        one_mechanism=one_mechanism,
        one_mechanism_explained=ONE_MECHANISM,
        kinds=kinds,
        kinds_explained=KINDS,
        told_apart=told_apart,
        landmarks=landmarks,
        landmarks_explained=LANDMARKS,
    )


def one_claim(
    number: int, statement: str, rows: list[dict], models: Mapping[str, str], datasets: Mapping[str, str]
) -> Claim:
    """A claim with its verdicts for each model on all datasets, and on each."""
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
    about = (
        f"{model}, {dataset}" if row["claim"] != GAP_CLAIM else f"{model}, {dataset}, {LOGITS_TITLES[row['logits']]}"
    )
    if row.get("parts"):
        effect = "; ".join(f"{part['title']} {part_text(Part(**part))}" for part in row["parts"])
        about = f"{about}, {row['rule']}" if row["rule"] else about
    other = row["in_logits"]["verdict"] if row["in_logits"] else row["verdict"]
    return Verdict(row["verdict"], about, effect, in_logits=None if other == row["verdict"] else other)


def _one_mechanism(rows: list[dict]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "model": row["model"],
                "dataset": row["dataset"],
                "logits": LOGITS_TITLES[row["logits"]],
                "gap": row["area"],
                "95 % interval": between(row["area_low"], row["area_high"]),
                "one mechanism": row["area_null"],
                "95 % of simulations": between(row["area_null_low"], row["area_null_high"]),
                "beyond": BEYOND[row["beyond"]],
            }
            for row in rows
        ]
    )


def _kinds(rows: list[dict]) -> pl.DataFrame:
    found = []
    for row in rows:
        about = {"model": row["model"], "dataset": row["dataset"]}
        gains = {"gain of kinds": gain_text(row, "kinds"), "gain of degrees": gain_text(row, "degrees")}
        found.append(
            {**about, "examples": row["n"], "verdict": row["verdict"], **gains, "could see": visible_share(row)}
        )
        for part in row["within"]:
            verdict = f"{part['verdict']}, within {part['among'].replace('_', ' ')}"
            found.append({**about, "examples": part["n"], "verdict": verdict, "could see": visible_share(part)})
    return pl.DataFrame(found)


def _told_apart(rows: list[dict]) -> pl.DataFrame:
    """What tells the kinds apart: how many of each value are of the lost kind, or how well a number tells."""

    def told(one: dict) -> str:
        name, factor = ("share_lost", 100) if one["auc"] is None else ("auc", 1)
        value, low, high = (factor * one[f"{name}{end}"] for end in ("", "_low", "_high"))
        return (
            f"{value:.0f} % lost ({between(low, high, 0)})"
            if factor > 1
            else f"AUC {value:.2f} ({between(low, high, 2)})"
        )

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
