"""The groups and the estimates of the experiments, compared with slow and obvious ones."""

import json

import numpy as np
import polars as pl
import pytest

from anchorscope.experiments.boundary import read_known
from anchorscope.experiments.catalogue import EVERY_CLAIM
from anchorscope.experiments.groups import Grouping, read_groups
from anchorscope.experiments.judge import judge_experiment, with_experiments
from anchorscope.experiments.means import MEANS_SCHEMA, bins, by_anchor, matched_gap, rows, to_table
from anchorscope.experiments.names import ENOUGH
from anchorscope.experiments.patching import patching_rows
from anchorscope.experiments.saliency import SAMPLE, saliency_rows
from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.bootstrap import resample
from anchorscope.summarise.claims import Findings
from anchorscope.summarise.claims_page import claims_page
from anchorscope.summarise.grouping import thirds
from anchorscope.summarise.tables import gather, read_coverage
from planted_experiments import HEADLINE, World, boundary, patching


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, two_kinds=True)


def test_groups_are_the_flips_of_the_probe_that_labels(world):
    groups = world.groups()
    for rule, probe, other in (("flip", "full", "second_b"), ("honest", "second_b", "half_a")):
        found = groups.by_rule[rule]
        for name, array in ((probe, found.question_anchored), (other, found.other_prompt)):
            np.testing.assert_array_equal(array[0], (world.clean[name] < 0) != (world.cut[name] < 0))
        np.testing.assert_array_equal(found.labelling[0], world.clean[probe])
    np.testing.assert_array_equal(groups.by_rule["honest"].measuring[0], world.clean["half_a"])


def test_groups_do_not_depend_on_the_order_of_rows(world):
    shuffled = world.rows(world.cut, "exact_question").sample(fraction=1, shuffle=True, seed=0)
    found = read_groups(shuffled, HEADLINE).by_rule["honest"].question_anchored
    np.testing.assert_array_equal(found, world.groups().by_rule["honest"].question_anchored)


def sample_of(repeats: int, layers: int, examples: int) -> tuple[np.ndarray, Grouping]:
    """Values, and groups with unequal weights and some who do not count."""
    generator = np.random.default_rng(0)
    values, logits = generator.normal(size=(2, repeats, layers, examples))
    inside, counted = generator.random((2, repeats, layers, examples)) < np.array([0.4, 0.9])[:, None, None, None]
    return values, Grouping(
        question_anchored=inside,
        other_prompt=inside,
        labelling=logits,
        measuring=logits,
        share_learnt=0.4,
        counted=counted,
        stands_for=generator.integers(1, 4, examples).astype(float),
    )


def test_group_means_are_weighted_means_over_repeats():
    values, sample = sample_of(2, 3, 60)
    drawn = resample([str(number) for number in range(60)], 2, 50, seed=0)
    found = by_anchor(values, sample, drawn)
    for layer in range(3):
        by_repeat = []
        for repeat in range(2):
            means = []
            for group in (True, False):
                who = sample.counted[repeat, layer] & (sample.question_anchored[repeat, layer] == group)
                means.append(np.average(values[repeat, layer, who], weights=sample.stands_for[who]))
            by_repeat.append([*means, means[0] - means[1]])
        expected = np.mean(by_repeat, axis=0)
        got = [found[anchor].value.mean[layer] for anchor in ("question", "answer", "gap")]
        np.testing.assert_allclose(got, expected)


def test_a_matched_gap_is_the_weighted_mean_of_differences_within_bins():
    values, sample = sample_of(1, 2, 200)
    drawn = resample([str(number) for number in range(200)], 1, 50, seed=0)
    found = matched_gap(values, sample, drawn)
    for layer in range(2):
        place, differences, weights = bins(sample.labelling[0])[layer], [], []
        for one in range(place.max() + 1):
            groups = [
                sample.counted[0, layer] & (place == one) & (sample.question_anchored[0, layer] == group)
                for group in (True, False)
            ]
            if all(who.any() for who in groups):
                means = [np.average(values[0, layer, who], weights=sample.stands_for[who]) for who in groups]
                q, a = (sample.stands_for[who].sum() for who in groups)
                differences.append(means[0] - means[1])
                weights.append(q * a / (q + a))
        assert found.value.mean[layer] == pytest.approx(np.average(differences, weights=weights))


def test_no_bin_spans_zero_and_bins_of_one_side_are_of_equal_size():
    logits = np.random.default_rng(0).normal(0.5, size=(1, 300))
    found = bins(logits)[0]
    for one in np.unique(found):
        assert len(set(logits[0, found == one] < 0)) == 1
    for side in (logits[0] < 0, logits[0] >= 0):
        sizes = np.unique(found[side], return_counts=True)[1]
        assert sizes.max() - sizes.min() <= 1


def test_the_mean_over_layers_is_of_layers_with_enough_examples():
    values, sample = sample_of(1, 3, 100)
    sample.question_anchored[0, 1] = np.arange(100) < ENOUGH // 2
    drawn = resample([str(number) for number in range(100)], 1, 50, seed=0)
    found = list(rows(by_anchor(values, sample, drawn)["gap"], measure="m"))
    assert [row["layer"] for row in found] == [0, 1, 2, None]
    assert found[-1]["value"] == pytest.approx((found[0]["value"] + found[2]["value"]) / 2)


def test_what_is_known_of_an_example_is_found_by_its_id(world):
    groups = world.groups()
    ids = groups.examples["id"].to_list()
    stands_for = 1 + np.arange(len(ids)) / 10
    chosen = pl.DataFrame({"id": ids, "stands_for": stands_for}).with_columns(logprobs=pl.lit([-1.0, -3.0, -50.0]))
    unsure = pl.DataFrame({"id": ids, "refused": [name < "0100" for name in ids]})
    known = read_known(groups, chosen.sample(fraction=1, shuffle=True, seed=0), unsure)
    np.testing.assert_array_equal(known["stands_for"], stands_for)
    assert set(known["logprob"]) == {-18.0}, "with the token that ended the answer"
    np.testing.assert_array_equal(known["unsure"], [100.0 * (name < "0100") for name in ids])
    np.testing.assert_allclose(known["popularity"], np.log10(groups.popularity))


def test_a_donor_of_the_same_third_of_popularity_is_in_that_stratum(world):
    assert thirds(np.array([1.0, 50.0, 99.0, np.nan]), np.arange(100.0)).tolist() == [0, 1, 2, -1]
    scores = world.rows(world.cut, "patch_question").with_columns(donor_popularity=pl.lit(10**9))
    table = to_table(patching_rows(scores, world.groups(), world.resamples()))
    whole = {row["stratum"]: row["n"] for row in table.filter(layer=0, rule="flip", anchor="gap").to_dicts()}
    third = thirds(world.groups().popularity, world.groups().popularity)
    assert whole["same_popularity"] == (third == 2).sum()
    assert whole["right"] + whole["hallucinated"] == whole["all"] == len(world.wrong)
    assert whole["published"] == (~world.wrong & (world.clean["full"][0] < 0)).sum()


def test_an_example_without_a_donor_counts_nowhere(world):
    scores = world.rows(world.cut, "patch_question").with_columns(donor_popularity=pl.lit(None, pl.Int64))
    changed = [name for name in scores.columns if name.startswith("logit_ko")]
    scores = scores.with_columns(pl.when(pl.col("id") >= "0010").then(name).alias(name) for name in changed)
    table = to_table(patching_rows(scores, world.groups(), world.resamples()))
    assert table.filter(layer=0, rule="honest", anchor="gap", stratum="all")["n"].to_list() == [len(world.wrong) - 10]
    assert "same_popularity" not in set(table["stratum"])


def test_scores_of_other_examples_are_one_sentence(world):
    scores = world.rows(world.cut, "patch_question").filter(pl.col("id") != "0000")
    with pytest.raises(ValueError, match="hold different examples"):
        to_table(patching_rows(scores, world.groups(), world.resamples()))


def test_a_reference_layer_without_saliency_is_one_sentence():
    values = pl.DataFrame({"id": ["a"], "layer": [1], "flow": ["exact"], "value": [1.0], "hallucinated": [True]})
    with pytest.raises(ValueError, match="not measured at the reference layer, 2"):
        to_table(saliency_rows(values, layer=2, seed=0), **SAMPLE)


def test_claims_are_judged_on_each_dataset_and_on_all_of_them():
    tables = {("model", "one"): boundary("holds", 0), ("model", "two"): boundary("a push", 0)}
    found = judge_experiment("boundary", tables, readable=set(tables))
    assert [(row.dataset, row.rule) for row in found] == [
        (dataset, rule) for dataset in ("one", "two", None) for rule in ("flip", "honest")
    ]
    effects = {row.dataset: row.effect for row in found if row.rule == "honest"}
    assert effects[None] == pytest.approx((effects["one"] + effects["two"]) / 2)
    unread = judge_experiment("boundary", tables, readable=set())
    assert {(row.verdict, row.because) for row in unread} == {("undecided", "the probe is no better than chance")}


def test_popularity_is_left_out_of_a_claim_where_no_dataset_has_it():
    table = boundary("holds", 0).filter(measure="accuracy")
    found = judge_experiment("boundary", {("model", "one"): table}, readable={("model", "one")})
    assert {len(row.parts) for row in found} == {2}
    assert {row.verdict for row in found} == {"supported"}


def test_the_page_has_every_part_of_an_experiments_claim():
    tables = {("model", "one"): patching("holds", 0)}
    judged = judge_experiment("patching", tables, readable=set(tables))
    alone = Findings({6: "as before"}, {}, {}, claims=[], one_mechanism=[], kinds=[], landmarks=[], weights={}, note="")
    findings = with_experiments(alone, judged)
    page = claims_page(findings, EVERY_CLAIM)
    assert list(json.loads(findings.to_json())["statements"]) == ["6", "7"], "that which was run"
    for part in judged[0].parts:
        assert part.title in page
    assert "| model | one | honest | supported |" in page


def test_a_gathered_table_says_what_its_numbers_come_from(tmp_path):
    table = pl.DataFrame([{"measure": "auc", "value": 1.0, "resampled": [1.0]}], schema=MEANS_SCHEMA)
    for name, more in (("one", {}), ("two", {"not_probed": "too few"})):
        made = provenance(stage="test", model={"weights": "random"}, path=None, **more)
        write_frame(
            tmp_path / f"{name}.parquet", table if name == "one" else pl.DataFrame(schema={"id": pl.String}), made
        )
    files = [str(tmp_path / f"{name}.parquet") for name in ("one", "two")]
    pairs = [("model", "one"), ("model", "two")]
    found = gather(read_coverage(pairs, files), {"patching": files}, {"one": "file", "two": "hub"})["patching"]
    assert found.select("model", "weights", "dataset", "source").rows() == [("model", "random", "one", "file")]
    assert found.columns[-len(MEANS_SCHEMA) :] == list(MEANS_SCHEMA)
    with pytest.raises(ValueError, match="too few"):
        read_coverage(pairs[1:], files[1:])
