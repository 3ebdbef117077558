"""Experiments run on top of a finished run: with its probes, and without computing anything of it again."""

import polars as pl
import pytest

from anchorscope.extract.axes import REPLACING
from anchorscope.extract.store import ActivationReader
from anchorscope.probe.kept import read_probes
from rounding import of_logits
from small_run import jobs, snakemake

KEYS = ["id", "layer", "component", "position", "repeat"]


PROBES = [f"logit_clean_{probe}" for probe in ("full", "half_a", "half_b")]


@pytest.mark.parametrize("experiment", REPLACING)
def test_scores_are_those_of_the_main_runs_probes(experiment, experimented):
    """They are read from disk; products of the same numbers may be added up in another order."""
    delta = pl.read_parquet(experimented / "results/delta/tiny/one.parquet").filter(intervention="exact_question")
    scores = pl.read_parquet(experimented / f"results/experiments/{experiment}/tiny/one.parquet")
    assert set(scores["intervention"]) == {intervention for _, intervention in REPLACING[experiment]}
    place = delta.filter(component="resid", position="answer_last").sort(KEYS)
    reader = ActivationReader(sorted((experimented / "results/activations/tiny/one").iterdir()))
    clean = reader.read("resid", "answer_last", "first", "clean", layers=range(reader.layers))
    kept = read_probes(experimented / "results/probes/tiny/one/resid.answer_last.parquet")
    rounding = max(of_logits(fitted, clean) for of_repeat in kept for fitted in of_repeat.values())
    about = [*KEYS, "cluster", "popularity", "hallucinated", "fold"]
    for intervention, mine in scores.sort(KEYS).group_by("intervention", maintain_order=True):
        assert mine.select(about).equals(place.select(about)), intervention
        assert apart(mine, place) < rounding, intervention
    wrong = mine.with_columns(
        logit_clean_half_b=pl.col("logit_clean_half_b") + 10 * rounding * (pl.int_range(pl.len()) == 7)
    )
    assert apart(wrong, place) > rounding, "one logit that is wrong by ten times the rounding"


def apart(some: pl.DataFrame, other: pl.DataFrame) -> float:
    """The largest difference between clean logits, or chances, of the same probes."""
    return max((some[name] - other[name]).abs().max() for name in ("p_clean", *PROBES))


def test_what_a_replacement_did_is_null_only_where_nothing_was_replaced(experimented):
    answers = pl.concat(
        pl.read_parquet(path, columns=["id", "donor_wrong", "donor_right", "other", "right", "popularity"])
        for path in sorted((experimented / "results/answers/tiny/one").glob("*.parquet"))
    )
    donor_of = {
        "patch_question": "donor_wrong",
        "patch_random": "donor_wrong",
        "patch_right": "donor_right",
        "answer_after_other": "other",
    }
    right = dict(answers.select("id", "right").iter_rows())
    for experiment in REPLACING:
        scores = pl.read_parquet(experimented / f"results/experiments/{experiment}/tiny/one.parquet")
        done = scores["replaced"] > 0
        for column in ("p_ko", "delta_p", "flips", "logit_ko_full", "logit_ko_half_a", "logit_ko_half_b"):
            assert (scores[column].is_not_null() == done).all(), column
        assert done.mean() > 0.5, (
            "in the small run, all wrong answers to a shard have one gold, so that few have donors"
        )
        assert scores.filter(done)["flips"].any(), "nothing happened at all"
        for intervention, column in donor_of.items():
            named = dict(scores.filter(intervention=intervention).select("id", "donor").iter_rows())
            expected = dict(answers.filter(pl.col("id").is_in(list(named))).select("id", column).iter_rows())
            assert named == (expected if named else {})
            if column != "other":
                assert all(right[donor] is (column == "donor_right") for donor in named.values() if donor)


def test_no_pass_of_the_finished_run_is_done_again_and_a_second_time_nothing_at_all(experimented):
    targets = [f"results/experiments/{experiment}/tiny/one.parquet" for experiment in REPLACING]
    assert not jobs(snakemake(experimented, "--dry-run", *targets))
    others = jobs(snakemake(experimented, "--dry-run"))
    # The second dataset's passes and scores are still to be made.
    assert (others["extract_experiment"], others["score_experiment"], others["probe"]) == (2, 2, 1)
    assert not {"answer", "choose", "extract"} & set(others)
