"""An example without the words that a knockout cuts counts in nothing that is said about that knockout."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from anchorscope.extract.axes import EXACT, HEADLINE, Headline, passes_of
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.probe.delta import measure
from anchorscope.summarise.pair_tables import summary_tables
from rounding import assert_same, of_sums

EXAMPLES, LAYERS, WIDTH = 150, 2, 6


def write(folder: Path, knockout: str, cut: list[int]) -> None:
    """Activations that tell right from wrong, each pass with its own noise."""
    generator = torch.Generator().manual_seed(len(knockout))
    right = torch.arange(EXAMPLES) % 2 == 0
    vectors = torch.randn(1, LAYERS, len(passes_of(knockout)), 1, EXAMPLES, WIDTH, generator=generator)
    vectors[..., 0] += 2 * right.float()
    keys = [
        {"id": f"{number:03d}", "right": bool(right[number]), "subject": None, "popularity": None, "cut": cut[number]}
        for number in range(EXAMPLES)
    ]
    shape = {"layers": LAYERS, "width": WIDTH, "dtype": torch.float32}
    with ActivationWriter(folder, **shape, made_from={}, grid=HEADLINE, knockout=knockout) as writer:
        writer.add(keys, vectors)


@pytest.fixture
def measured(tmp_path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Delta and layers tables in which every third example has no subject, and nearly all lack a property."""
    write(tmp_path, EXACT, [3] * EXAMPLES)
    write(tmp_path, "subject", [number % 3 for number in range(EXAMPLES)])
    write(tmp_path, "property", [int(number < 30) for number in range(EXAMPLES)])
    return measure(ActivationReader([tmp_path]), folds=5, repeats=1, seed=0, where="here")[:2]


def test_what_a_knockout_did_is_null_where_it_cut_nothing(measured):
    delta, _ = measured
    for intervention in ("subject", "random_subject"):
        rows = delta.filter(intervention=intervention)
        nothing = pl.col("id").cast(pl.Int64) % 3 == 0
        for column in ("p_ko", "delta_p", "flips", "distance", "logit_ko_half_a", "logit_ko_full"):
            assert rows.filter(nothing)[column].is_null().all(), column
            assert rows.filter(~nothing)[column].is_not_null().all(), column
    assert delta.filter(intervention=EXACT)["p_ko"].is_not_null().all()
    assert delta["p_clean"].is_not_null().all()


def test_means_and_auc_are_those_of_the_others(measured):
    delta, layers = measured
    summary = summary_tables(delta, layers, Headline(*HEADLINE.places()[0]), bootstrap_draws=100, seed=0)["summary"]
    for layer in range(LAYERS):
        rows = delta.filter(intervention="subject", layer=layer).drop_nulls("p_ko")
        wanted = {"intervention": "subject", "rule": "flip", "logits": "measured", "anchor": "all", "layer": layer}
        row = summary.filter(**wanted).row(0, named=True)
        assert row["n"] == len(rows) == EXAMPLES * 2 // 3
        # A change of two chances in percent, and the sum of all.
        steps, size = of_sums(8, 100.0, np.float32), float(rows["delta_p"].abs().mean())
        assert_same([row["delta_p"]], [rows["delta_p"].mean()], steps + of_sums(len(rows), size, np.float32))
        assert row["low"] < row["delta_p"] < row["high"]
        expected = roc_auc_score(rows["hallucinated"], rows["logit_ko_full"])
        assert_same([row["auc_intervened"]], [expected], of_sums(len(rows), largest=1.0))


def test_a_knockout_that_cuts_in_too_few_examples_is_not_measured(measured):
    for table in measured:
        assert {"property", "random_property"}.isdisjoint(table["intervention"])
        assert {EXACT, "subject"} <= set(table["intervention"])
