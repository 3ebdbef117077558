"""What the model says of its answers, and samples, by a real run of the workflow."""

import shutil

import numpy as np
import polars as pl
import pytest

from anchorscope.answer.answers import answer_ends
from anchorscope.detect.methods import METHODS
from anchorscope.extract.store import ActivationReader
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.kept import read_probes
from rounding import assert_same, of_logits, of_sums
from small_run import base_config, jobs, snakemake, write_config


def test_samples_and_askings_are_of_the_examples_whose_activations_are_kept(experimented):
    results = experimented / "results"
    kept = pl.read_parquet(results / "activations/tiny/one/0000/resid.answer_last.parquet", columns=["id"])["id"]
    asked, samples = (pl.read_parquet(results / name / "tiny/one/0000.parquet") for name in ("asked", "samples"))
    assert set(asked["id"]) == set(samples["id"]) == set(kept)
    assert asked["p_true"].is_between(0, 1).all()
    assert asked["confidence"].is_between(0, 1).all()
    ninths = asked["confidence"].to_numpy() * 9
    assert_same(ninths, ninths.round(), of_sums(1, 9.0, np.float32))  # digits
    assert set(samples["samples"].list.len()) == {2}
    assert not samples["samples"].list.join("").str.contains("\n").any()


def test_a_run_scores_every_probed_example_with_every_method(experimented):
    delta = pl.read_parquet(experimented / "results/delta/tiny/one.parquet")
    scores = pl.read_parquet(experimented / "results/detect/scores/tiny/one.parquet")
    assert scores["method"].unique(maintain_order=True).to_list() == list(METHODS)
    for (method,), rows in scores.group_by("method"):
        assert sorted(rows["id"]) == sorted(set(delta["id"])), method
    first = delta.filter(repeat=0, intervention="exact_question", component="resid", position="answer_last", layer=1)
    both = scores.filter(method="probe").join(first, on="id")
    reader = ActivationReader(sorted((experimented / "results/activations/tiny/one").iterdir()))
    clean = reader.read("resid", "answer_last", "first", "clean", layers=range(reader.layers))
    kept = read_probes(experimented / "results/probes/tiny/one/resid.answer_last.parquet")
    assert_same(both["score"], both["logit_clean_full"], of_logits(kept[0][FULL], clean))  # the main run's probe


def test_output_scores_count_the_token_that_ended_the_answer(experimented, tokenizer):
    answers = pl.concat(map(pl.read_parquet, sorted((experimented / "results/answers/tiny/one").glob("*.parquet"))))
    rows = {row["id"]: row for row in answers.to_dicts()}
    ends, limit = answer_ends(tokenizer), 32
    scores = pl.read_parquet(experimented / "results/detect/scores/tiny/one.parquet")
    for method, stop in (("sum_logprob", True), ("answer_sum_logprob", False)):
        for name, score in scores.filter(method=method).select("id", "score").iter_rows():
            ids, logprobs, final = (rows[name][key] for key in ("generated_ids", "logprobs", "answer_final"))
            assert ids[-1] in ends or len(ids) == limit
            assert not any(token in ends for token in ids[:-1])
            counted = range(len(ids) if stop else final + 1)
            expected = -sum(logprobs[place] for place in counted)
            assert_same([score], [expected], of_sums(len(counted), expected, np.float32))


@pytest.mark.slow
def test_adding_samples_computes_nothing_again(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy", symlinks=True)
    write_config(tmp_path / "copy", base_config() | {"samples": 2})
    assert jobs(snakemake(tmp_path / "copy", "--dry-run")).keys() <= {"report", "provenance"}, "these name the settings"
