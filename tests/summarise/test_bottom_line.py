"""What was found of a model, in a few sentences that claims.md and the report begin with."""

import polars as pl
import pytest

from anchorscope.summarise.claims import JudgedClaim
from anchorscope.summarise.findings import QUALITIES, bottom_line
from anchorscope.summarise.weigh_kinds import TOLD_SCHEMA

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


def control_claim(dataset: str | None, effect: float | None, verdict: str) -> JudgedClaim:
    return JudgedClaim(claim=6, model="m", dataset=dataset, logits="measured", verdict=verdict, effect=effect)


def series(gaps: dict[str, float]) -> pl.DataFrame:
    """Gaps under the published rule, among rows that do not count."""
    row = {"rule": "flip", "logits": "measured", "anchor": "gap", "intervention": "exact_question"}
    rows = [{**row, "model": "m", "dataset": dataset, "area": gap} for dataset, gap in gaps.items()]
    others = ({"rule": "honest"}, {"model": "n"}, {"anchor": "question"}, {"logits": "residual"})
    return pl.DataFrame([*rows, *({**rows[0], "area": -99.0, **other} for other in others)])


def kind(dataset: str, verdict: str, n: int = 500, share: float | None = 0.081, **others) -> dict:
    row = {"model": "m", "dataset": dataset, "n": n, "verdict": verdict, "could_see_share": share}
    return {**row, "within": [], "told_apart": [], **others}


def told(quality: str, *, value: str | None = None, **found: float) -> dict:
    return {**dict.fromkeys(TOLD_SCHEMA), "quality": quality, "value": value, "n": 40, **found}


def forms(*rows: dict) -> pl.DataFrame:
    """Shares of question forms under the honest rule, among rows that do not count."""
    row = {"model": "m", "dataset": "one", "rule": "honest", "logits": "measured", "grouping": "question_form"}
    row |= {"form": "who", "share_question": 0.9, "share_answer": 0.1}
    changes = ({"model": "n"}, {"rule": "flip"}, {"logits": "recentred"}, {"grouping": "answer_form"})
    others = [{**row, **change} for change in changes]
    nobody = {**row, "form": "equal", "share_question": None, "share_answer": None}
    return pl.DataFrame([*others, nobody, *({**row, **some} for some in rows)])


def said(kinds: list[dict], *, rows=None, control=(), shares=(), gaps=None) -> str:
    """The bottom line of model m, with the claims and kinds of another model beside it."""
    claims = [*gap_claim("one", -1.0, model="other"), *gap_claim("one", -1.0, claim=2)]
    claims += [*(gap_claim("one", -6.0) if rows is None else rows), *control]
    kinds = [kind("one", "two kinds", n=9999) | {"model": "other"}, *kinds]
    return bottom_line("m", claims, kinds, series=series(gaps or {"one": -40.0, "two": -20.0}), forms=forms(*shares))


GAP = (
    "averaged over layers, the gap between Question- and Answer-Anchored examples is −40.0 points as published (this "
    "model under the published rule, not the paper's numbers), −6.0 (95 % interval −8.0 … −3.0) when one prompt labels "
    "and another measures, and −3.0 (95 % interval −5.0 … 0.0) without the push, the shift that the knockout gives to "
    "every example alike."
)
OF_500 = f"of 500 examples, {GAP}"
MISSED = (
    "There, kinds as far apart as on HotpotQA could have been missed where fewer than 8 % of the examples lose their "
    "evidence."
)


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ("two kinds", "Two kinds of examples are seen on `one` (500 examples)."),
        ("by degrees", f"Examples differ by degrees, not by kind, on `one` (500 examples). {MISSED}"),
        ("one mechanism", f"One mechanism is enough on `one` (500 examples). {MISSED}"),
        ("undecided", f"Whether there are two kinds is undecided on `one` (500 examples). {MISSED}"),
    ],
)
def test_one_dataset_has_the_gap_and_one_verdict(verdict, sentence):
    assert said([kind("one", verdict)]) == f"{OF_500} {sentence}"


def test_ten_datasets_are_averaged_counted_and_named_where_they_are_few():
    names = [f"d{number}" for number in range(10)]
    rows = [row for name in [*names, None] for row in gap_claim(name, -5.0)]
    kinds = [kind("d0", "two kinds", n=1200), *(kind(name, "undecided", n=300) for name in ("d1", "d2", "d3"))]
    kinds += [kind(name, "by degrees", n=150 + 25 * at, share=at / 20) for at, name in enumerate(names[4:])]
    sentence = said(kinds, rows=rows, gaps={name: -4.0 * at for at, name in enumerate(names)})
    assert sentence == (
        "of 3,375 examples, averaged over layers and 10 datasets, the gap between Question- and Answer-Anchored "
        "examples is −18.0 points as published (this model under the published rule, not the paper's numbers), −5.0 "
        "(95 % interval −7.0 … −2.0) when one prompt labels and another measures, and −2.5 (95 % interval −4.5 … 0.5) "
        "without the push, the shift that the knockout gives to every example alike. Two kinds of examples are seen on "
        "`d0` (1,200 examples). Examples differ by degrees, not by kind, on 6 datasets of 150 to 275 examples. Whether "
        "there are two kinds is undecided on `d1` (300 examples), `d2` (300 examples) and `d3` (300 examples). There, "
        "kinds as far apart as on HotpotQA could have been missed where fewer than 25 % of the examples lose "
        "their evidence."
    )


def test_only_datasets_that_can_be_judged_are_averaged():
    rows = [*gap_claim("one", -6.0), *gap_claim("two", because=CHANCE), *gap_claim(None, -6.0)]
    kinds = [kind("one", "two kinds", n=400), kind("two", "two kinds", n=100)]
    on_both = "Two kinds of examples are seen on `one` (400 examples) and `two` (100 examples)."
    assert said(kinds, rows=rows) == f"{OF_500} {on_both}"


def test_few_examples_come_first_and_could_have_missed_even_a_half():
    kinds = [kind("one", "undecided", n=401), kind("two", "undecided", n=99, share=None)]
    assert said(kinds) == (
        f"little can be said on `two` (99 examples): fewer than 100 examples. Of 500 examples, {GAP} Whether there are "
        "two kinds is undecided on `one` (401 examples) and `two` (99 examples). There, kinds as far apart as on "
        "HotpotQA could have been missed even where half of the examples lose their evidence."
    )


def test_groups_that_are_forms_come_first():
    shares = [
        {"form": "choice", "share_question": 0.5, "share_answer": 0.25},
        {"form": "when", "share_question": 0.49, "share_answer": 0.05},
        {"form": "yes_no", "share_question": 0.26, "share_answer": 0.7},
        {"form": "how_many", "share_question": 0.2, "share_answer": 0.714, "dataset": "two"},
    ]
    assert said([kind("one", "two kinds")], shares=shares) == (
        "on `one` the groups are largely forms of questions: choice questions are 50 % of the Question-Anchored "
        "examples and 25 % of the others. On `two` the groups are largely forms of questions: how-many questions "
        f"are 71 % of the Answer-Anchored examples and 20 % of the others. Of 500 examples, {GAP} Two kinds of "
        "examples are seen on `one` (500 examples)."
    )


def test_a_control_that_moves_the_probe_is_named():
    control = [
        control_claim("one", -4.0, "contradicted"),
        control_claim("two", 3.21, "contradicted"),
        control_claim("three", -9.0, "undecided"),
        control_claim("four", 0.1, "supported"),
        control_claim(None, -8.0, "contradicted"),
    ]
    assert said([kind("one", "two kinds")], control=control) == (
        f"{OF_500} Cutting as many other words of the question moves the probe, too, on `one` (−4.0), `two` (+3.2). "
        "Two kinds of examples are seen on `one` (500 examples)."
    )


LOST = [told("question_form", value=value, share_lost=share) for value, share in (("who", 0.3), ("which", 0.8))]
BY_FORM = "told apart best by the form of the question (80 % of 40 which lost, 30 % of 40 who lost)"
WITHIN = [
    {"among": "question_form who", "verdict": "two kinds"},
    {"among": "question_form when", "verdict": "undecided"},
    {"among": "answer_in_question no", "verdict": "two kinds"},
]


@pytest.mark.parametrize(
    ("tellers", "within", "sentence"),
    [
        (LOST, [], BY_FORM),
        ([*LOST, told("popularity", auc=0.7)], [], BY_FORM),  # 0.7 is less than half of the way to 1, as 0.5 is
        ([*LOST, told("clean_logit", auc=0.2)], [], "told apart best by the clean logit (AUC 0.20)"),
        ([*LOST[:1], told("popularity", auc=0.52)], [], "told apart best by popularity (AUC 0.52)"),
        (LOST, WITHIN, f"{BY_FORM}, and seen again within question form who and answer in question no"),
        (LOST, WITHIN[1:2], f"{BY_FORM}, and seen within none of its larger forms"),
        ([], WITHIN[1:2], "seen within none of its larger forms"),
    ],
)
def test_two_kinds_are_told_apart(tellers, within, sentence):
    found = said([kind("one", "two kinds", told_apart=tellers, within=within)])
    assert found == f"{OF_500} Two kinds of examples are seen on `one` (500 examples); {sentence}."


def test_two_kinds_on_several_datasets_are_told_apart_on_each():
    kinds = [kind("one", "two kinds", n=300, told_apart=LOST), kind("two", "two kinds", n=150)]
    kinds.append(kind("three", "two kinds", n=50, within=WITHIN[:1]))
    assert said(kinds).endswith(
        "Two kinds of examples are seen on `one` (300 examples), `two` (150 examples) and `three` (50 examples); on "
        f"`one` {BY_FORM}; on `three` seen again within question form who."
    )


@pytest.mark.parametrize("quality", ["answer_in_question", "hallucinated", "property", "answer_length"])
def test_every_quality_has_words_that_fit_the_sentence(quality):
    words = {
        "answer_in_question": "whether the answer stands in the question",
        "hallucinated": "whether the answer is hallucinated",
        "property": "the property asked about",
        "answer_length": "the length of the answer",
    }
    assert QUALITIES[quality] == words[quality]
    found = said([kind("one", "two kinds", told_apart=[told(quality, auc=0.9)])])
    assert found.endswith(f"told apart best by {words[quality]} (AUC 0.90).")


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (gap_claim("one", because=CHANCE), f"nothing can be said, because {CHANCE}."),
        ([], "not probed, because its answers are too few or too one-sided."),
    ],
)
def test_a_model_without_a_gap_says_why(rows, sentence):
    assert said([kind("one", "undecided")], rows=rows) == sentence
