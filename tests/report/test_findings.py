"""The sentences that sections open with: true for one model, several, none probed, and for what was planted."""

import polars as pl
import pytest
from markupsafe import Markup

from anchorscope.report.examples import PairExamples
from anchorscope.report.findings import (
    anchor_counts,
    answer_counts,
    best_methods,
    deepest_falls,
    honest_gaps,
    machines,
    probe_areas,
    survivals,
    verdict_counts,
)
from anchorscope.report.page import Section, page
from anchorscope.report.tables import licence_table
from anchorscope.summarise.findings import WHY_NOT_PROBED
from synthetic_run import HEADLINE, make_layers, make_provenance, make_series, make_summary, make_text

BOTH = {"small": "Small", "large": "Large (random weights)"}
DATASETS = {"popqa": "PopQA", "nq": "NQ"}


@pytest.mark.parametrize(
    ("honest", "recentred", "said"),
    [
        ([-4.94, -6.6, -3.3], [-2.0, -2.8, -1.3], "−4.9 (−6.6 … −3.3) points; without the push, −2.0 (−2.8 … −1.3)."),
        ([-0.5, -1.2, 0.2], [0.1, -1.0, 1.2], "−0.5 (−1.2 … +0.2) points, which cannot be told from zero; without"),
        ([-4.94, -6.6, -3.3], [None, None, None], "−4.9 (−6.6 … −3.3) points."),
    ],
)
def test_the_honest_gap_is_told_with_its_interval(honest, recentred, said):
    (sentence,) = honest_gaps({"small": {"honest": honest, "recentred": recentred}}, {"small": "x"}, BOTH)
    assert sentence.startswith("Small: when another prompt measures it, the gap is ")
    assert said in sentence


@pytest.mark.parametrize("honest", [None, [None, None, None]])
def test_a_model_without_a_gap_says_why(honest):
    numbers = {"large": {"honest": honest, "recentred": honest}, "other": {}}
    assert honest_gaps(numbers, {"large": "nothing can be said."}, BOTH) == [f"{BOTH['large']}: nothing can be said."]


def claim(number: int, model: str, dataset: str | None, verdict: str, **others: object) -> dict:
    row = {"claim": number, "model": model, "dataset": dataset, "verdict": verdict}
    return row | {"logits": "measured", "rule": "honest"} | others


def test_verdicts_are_counted_once_for_each_claim_on_all_datasets_of_a_model():
    rows = [
        claim(1, "small", None, "supported"),
        claim(1, "small", "nq", "contradicted"),
        claim(1, "small", None, "undecided", logits="recentred"),
        claim(2, "small", None, "undecided"),
        claim(4, "small", None, "does not apply"),
        claim(7, "small", None, "contradicted", rule="flip"),
        claim(7, "small", None, "supported"),
        claim(11, "small", None, "contradicted", rule=None),
        claim(4, "large against small", None, "supported"),
        claim(1, "large", "nq", "contradicted"),
    ]
    assert verdict_counts(rows, BOTH | {"none": "None"}) == [
        "Small: 2 of 4 claims supported, 1 contradicted, 1 undecided.",
        "Large (random weights): 1 of 2 claims supported, 1 contradicted, 0 undecided.",
        f"None: {WHY_NOT_PROBED}",
    ]


def test_what_survives_is_counted_in_datasets():
    """Of two datasets, one has words that tell as much as the probe, and a gap that goes with the push."""
    on_nq = pl.col("dataset") == "nq"
    text = make_text({"small": 4}, list(DATASETS)).with_columns(gain_low=pl.when(on_nq).then(-0.01).otherwise(0.1))
    series = make_series(["small"], list(DATASETS)).with_columns(
        area_high=pl.when(on_nq).then(0.5).otherwise(pl.col("area_high"))
    )
    beyond = [
        {"model": "small", "logits": logits, "beyond": logits != "measured"} for logits in ("measured", "residual")
    ]
    assert survivals({"text": text, "series": series}, beyond, HEADLINE, BOTH) == [
        "Small, by 95 % intervals: the probe tells more than the words on 1 of 2 datasets; the honest gap stays below "
        "zero without the push on 1 of 2 datasets; the honest gap is beyond one mechanism on 0 of 1 datasets.",
        f"{BOTH['large']}: {WHY_NOT_PROBED}",
    ]


def test_the_deepest_fall_is_the_lowest_of_all_datasets():
    summary = make_summary({"small": 6}, list(DATASETS))
    planted = {("question", "nq", 3): -77.7, ("answer", "nq", 3): 2.2}
    for (anchor, dataset, layer), value in planted.items():
        here = (pl.col("anchor") == anchor) & (pl.col("dataset") == dataset) & (pl.col("layer") == layer)
        summary = summary.with_columns(
            delta_p=pl.when(here & (pl.col("rule") == "honest")).then(value).otherwise("delta_p")
        )
    assert deepest_falls(summary, HEADLINE, BOTH, DATASETS) == [
        "Small: by the honest rule, ΔP is lowest on NQ, at layer 3: −77.7 for Question-Anchored examples and +2.2 for "
        "the others.",
        f"{BOTH['large']}: {WHY_NOT_PROBED}",
    ]
    above = summary.with_columns(delta_p=pl.lit(0.5))
    assert deepest_falls(above, HEADLINE, {"small": "Small"}, DATASETS) == [
        "Small: by the honest rule, ΔP is below zero in no layer."
    ]
    assert deepest_falls(summary.clear(), HEADLINE, {"small": "Small"}, DATASETS) == [f"Small: {WHY_NOT_PROBED}"]


def test_examples_of_each_group_are_added_up_over_datasets():
    rows = pl.DataFrame()
    probed = [
        PairExamples("Small", title, rows, total=1500, means={"question": {"n": 700}, "answer": {"n": 800}})
        for title in DATASETS.values()
    ]
    unprobed = PairExamples("Large", "NQ", rows, total=40, means={})
    only_answers = PairExamples("Third", "NQ", rows, total=9, means={"answer": {"n": 9}})
    assert anchor_counts([*probed, unprobed, only_answers]) == [
        "Small: 1,400 of 3,000 examples are Question-Anchored.",
        f"Large: {WHY_NOT_PROBED}",
        "Third: 0 of 9 examples are Question-Anchored.",
    ]


def test_areas_are_those_of_the_reference_layer_over_datasets():
    layers = make_layers({"small": 4}, list(DATASETS))
    lower = (pl.col("dataset") == "nq") & (pl.col("intervention") == "clean")
    layers = layers.with_columns(auc=pl.when(lower).then(0.7).otherwise("auc"))
    assert probe_areas(layers, HEADLINE, BOTH) == [
        "Small: the best layer's probe has an AUC of 0.70 … 0.85, and of 0.60 with the question cut.",
        f"{BOTH['large']}: {WHY_NOT_PROBED}",
    ]


def detected(areas: dict[str, dict[str, float]]) -> pl.DataFrame:
    """A table of methods' areas by dataset; the gain is sure where it is more than a tenth."""
    return pl.DataFrame(
        {"model": "small", "dataset": dataset, "method": method, "auc": auc}
        | {"gain_low": auc - areas["probe"][dataset] - 0.1, "gain_high": auc - areas["probe"][dataset] + 0.1}
        for method, by_dataset in areas.items()
        for dataset, auc in by_dataset.items()
    )


def test_the_best_method_is_that_of_the_highest_mean_and_was_measured_everywhere():
    areas = {"probe": {"popqa": 0.7, "nq": 0.6}, "saplma": {"popqa": 0.9, "nq": 0.65}, "pr": {"popqa": 0.99}}
    assert best_methods(detected(areas), BOTH) == [
        "Small: best on average is “SAPLMA”, with an AUC of 0.78 against the plain probe's 0.65; that is more than "
        "chance explains on 1 of 2 datasets."
    ]
    alone = {"saplma": {"nq": 0.5}, "probe": {"nq": 0.61}}
    assert best_methods(detected(alone), BOTH) == ["Small: no method has a better mean AUC than the plain probe, 0.61."]


def test_answers_are_added_up_and_stand_in_the_order_of_the_config():
    counts = {"asked": 600, "right": 200, "wrong": 390, "refused": 10, "analysed": 380}
    pairs = [("large", "nq"), ("small", "nq"), ("small", "popqa")]
    rows = pl.DataFrame([{"model": model, "dataset": dataset, **counts} for model, dataset in pairs])
    small, large = answer_counts(rows, BOTH)
    assert small == (
        "Small: of 1,200 questions, 400 were answered rightly, 780 wrongly and 20 not at all; 760 answers are analysed."
    )
    assert large.startswith(f"{BOTH['large']}: of 600 questions")


def test_every_machine_is_named():
    made = make_provenance({"small": 4}, list(DATASETS))
    made["computed"]["small"].append({**made["computed"]["small"][0], "device": "Xeon(R) Processor"})
    assert machines(made, {"small": "Small"}) == ["Small: computed in bfloat16 on NVIDIA H200, Xeon(R) Processor."]


def test_a_section_opens_with_its_sentences_escaped():
    one, several = (
        page(Markup(), [Section("Here", Markup("<p>content</p>"), findings)])
        for findings in (["a < b"], ["a < b", "second"])
    )
    assert '<p class="finding">a &lt; b</p>' in one
    assert several.index("<li>a &lt; b</li>") < several.index("<li>second</li>") < several.index("<p>content")
    assert 'class="finding"' not in page(Markup(), [Section("Here", Markup("<p>content</p>"))])


def test_licences_are_listed_and_a_record_from_before_they_were_asked_for_states_none():
    models, datasets = {"small": "Small"}, {"nq": "NQ"}
    stated = {"models": {"small": "mit"}, "datasets": {"nq": "cc-by-sa-3.0"}}
    assert dict(licence_table(stated, models, datasets).rows()) == {
        "weights of Small": "mit",
        "questions of NQ": "cc-by-sa-3.0",
        "figures and numbers of this run": "yours",
    }
    assert licence_table({}, models, datasets)["licence"].to_list() == ["not stated", "not stated", "yours"]
