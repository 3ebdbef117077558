"""What was found of a model, in one sentence that claims.md and the report begin with."""

import polars as pl
import pytest

from anchorscope.summarise.bottom_line import bottom_line
from anchorscope.summarise.claims import JudgedClaim

CHANCE = "the probe is no better than chance"


def gap_claim(dataset: str | None, effect: float | None = None, **others) -> list[JudgedClaim]:
    """As measured, and half of it recentred."""
    return [
        JudgedClaim(
            **{"claim": 1, "model": "m", "dataset": dataset, "logits": logits, "verdict": "undecided", **others},
            effect=None if effect is None else effect * part,
            low=None if effect is None else effect * part - 2,
            high=None if effect is None else effect * part + 3,
        )
        for logits, part in (("measured", 1.0), ("recentred", 0.5))
    ]


def series(gaps: dict[str, float]) -> pl.DataFrame:
    """Gaps under the published rule, among rows that do not count."""
    row = {"rule": "flip", "logits": "measured", "anchor": "gap", "intervention": "exact_question"}
    rows = [{**row, "model": "m", "dataset": dataset, "area": gap} for dataset, gap in gaps.items()]
    others = ({"rule": "replicate"}, {"model": "n"}, {"anchor": "question"}, {"logits": "residual"})
    return pl.DataFrame([*rows, *({**rows[0], "area": -99.0, **other} for other in others)])


BOTH = [*gap_claim("one", -6.0), *gap_claim("two", -4.0), *gap_claim(None, -5.0)]


@pytest.mark.parametrize(
    ("rows", "accounts", "sentence"),
    [
        (
            BOTH,
            ["two_lines", "by_degrees"],
            "averaged over layers and 2 datasets, the gap between Question- and Answer-Anchored examples is −30.0 "
            "points as published, −5.0 (95 % interval −7.0 … −2.0) when one prompt labels and another measures, and "
            "−2.5 (95 % interval −4.5 … 0.5) once the push that the knockout gives to all examples is taken out; "
            "two kinds of examples are seen on 1 of 2 datasets, a difference by degrees on 1.",
        ),
        (
            [*gap_claim("one", -6.0), *gap_claim("two", because=CHANCE), *gap_claim(None, -6.0)],
            [None, None],
            "averaged over layers, the gap between Question- and Answer-Anchored examples is −40.0 points as "
            "published, −6.0 (95 % interval −8.0 … −3.0) when one prompt labels and another measures, and −3.0 (95 % "
            "interval −5.0 … 0.0) once the push that the knockout gives to all examples is taken out; two kinds of "
            "examples are seen on none of 2 datasets, a difference by degrees on none.",
        ),
        (gap_claim("one", because=CHANCE), [None], f"nothing can be said, because {CHANCE}."),
        ([], [], "not probed, because its answers are too few or too one-sided."),
    ],
)
def test_a_sentence_says_what_was_found_of_a_model(rows, accounts, sentence):
    others = [*gap_claim("one", -1.0, model="other"), *gap_claim("one", -1.0, claim=2)]
    judged = [{"model": "m", "account": account} for account in accounts] + [{"model": "other", "account": "two_lines"}]
    assert bottom_line("m", [*others, *rows], judged, series({"one": -40.0, "two": -20.0})) == sentence
