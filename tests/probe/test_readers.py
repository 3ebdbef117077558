"""What text alone tells, held to scikit-learn, to resampling and to planted truths; and what the probed place tells."""

import json
from dataclasses import replace
from itertools import product

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from anchorscope.answer.answers import grade
from anchorscope.answer.prompts import decoded_offsets, tokens_over
from anchorscope.choose.balance import analysed
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import Grid
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import build_workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.logistic import Marks, fit
from anchorscope.probe.quality import auc, auc_gain
from anchorscope.probe.readers import best_layer, presence, read_features, read_texts, text_table
from anchorscope.probe.strengths import STRENGTHS, choose_strengths, cross_fitting, fit_training_sets, inner_losses
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.forms import question_form
from anchorscope.text.grading import find_gold
from few_examples import prompts
from rounding import assert_same, of_probes
from small_things import ROOT, tiny_model


def bundled(layout: str) -> list[dict]:
    path = ROOT / f"workflow/resources/questions/{layout}-mini.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def split(right: list[bool]) -> Examples:
    rows = [{"id": f"q{index:03}", "right": one, "subject": None, "popularity": 1} for index, one in enumerate(right)]
    return examples_of(rows, folds=5, repeats=1, seed=0, where="test")


def test_words_and_pairs_are_those_of_a_plain_count():
    texts = [row["question"] for row in bundled("nq")[:60]]
    found = presence(texts).by_example.to_dense().numpy()
    vectorizer = CountVectorizer(ngram_range=(1, 2), token_pattern=r"\w+", stop_words=["a", "an", "the"], min_df=2)
    expected = np.minimum(vectorizer.fit_transform(texts).toarray(), 1)
    assert sorted(map(tuple, found.T)) == sorted(map(tuple, expected.T))
    apart = presence(["one", "two"]).by_example.to_dense()
    assert apart.tolist() == [[0.0], [0.0]], "words of one text alone tell nothing"


def test_a_reader_is_scikit_learns_regression_cross_fitted_on_the_same_folds():
    rows = bundled("popqa")[:120]
    examples = split([row["obj"][0] < "J" for row in rows])
    marks = presence([row["question"] for row in rows])
    logits = read_features(marks, examples)
    seen, labels = marks.by_example.to_dense()[None], torch.from_numpy(examples.hallucinated).double()
    features = seen[0].numpy()
    training_sets = cross_fitting(torch.from_numpy(examples.splits[0].folds))
    chosen = choose_strengths(seen, labels, training_sets)
    probes = fit(features=seen, labels=labels, train=training_sets.train, strengths=chosen)
    rounding = of_probes(probes, seen, labels, training_sets.train, chosen)
    for fold, strength in enumerate(chosen[0].tolist()):
        train = examples.splits[0].folds != fold
        mean, scale = features[train].mean(0), features[train].std(0)
        shaped = (features - mean) / np.where(scale > 0, scale, np.inf)
        plain = LogisticRegression(C=1 / (strength * train.sum()), class_weight="balanced", tol=1e-10, max_iter=10_000)
        plain.fit(shaped[train], examples.hallucinated[train])
        expected = 1 / (1 + np.exp(-plain.decision_function(shaped[~train])))
        # A chance moves by at most a quarter of its logit.
        assert_same(1 / (1 + np.exp(-logits[~train])), expected, rounding / 4)


def test_a_word_that_all_training_texts_have_tells_nothing_about_one_that_lacks_it():
    """Of 22 shares, which add up to almost one."""
    drawn = torch.rand(25, 6, generator=torch.Generator().manual_seed(1)) < 0.3
    drawn[:, 0] = train = torch.arange(25) < 22
    marks = Marks(*drawn.nonzero().T, count=25, width=6)
    labels, strengths = (torch.arange(25) % 3 == 0).double(), torch.full((1, 1), 1e-3, dtype=torch.float64)
    probes = fit(features=marks, labels=labels, train=train[None], strengths=strengths)
    assert probes.weight[0, 0, 0] == 0
    seen = marks.by_example.to_dense()[None]
    plain = fit(features=seen, labels=labels, train=train[None], strengths=strengths)
    torch.testing.assert_close(probes.logits(marks), plain.logits(seen), rtol=0, atol=1e-6)


def test_words_are_read_as_if_every_zero_were_written_out():
    """Of two texts side by side, with more words than examples; some examples are in no training set."""
    one, other = ([row["question"] for row in bundled(name)[:120]] for name in ("nq", "hotpotqa"))
    marks = presence(one).beside(presence(other))
    seen, labels = marks.by_example.to_dense()[None], torch.tensor([len(text) % 2 for text in one]).double()
    assert marks.width > 120
    folds = torch.arange(120) % 5
    training_sets = replace(cross_fitting(folds), train=cross_fitting(folds).train & (torch.arange(120) >= 10))
    found, expected = (fit_training_sets(features, labels, training_sets) for features in (marks, seen))
    assert torch.equal(found.strengths, expected.strengths)
    rounding = of_probes(expected.probes, seen, labels, training_sets.train, expected.strengths)
    assert_same(found.probes.logits(marks).sigmoid(), expected.probes.logits(seen).sigmoid(), rounding / 4)


def answered(rows: list[dict]) -> list[dict]:
    """Rows that have texts, with everything else that the readers need."""
    plain = {"answer_final": 2, "exact_first": 0, "exact_last": 1}
    return [{**plain, "question": "who wrote it", "answer": "Jane Austen", **row} for row in rows]


@pytest.mark.parametrize(
    ("telling", "hallucinated", "right"),
    [
        ("question_words", {"question": "who sang this"}, {"question": "which city is that"}),
        ("answer_words", {"answer": "Jane Eyre"}, {"answer": "Jane Austen"}),
        ("answer_length", {"answer_final": 4}, {"answer_final": 2}),
        ("exact_length", {"exact_last": 3}, {"exact_last": 1}),
    ],
)
def test_each_reader_reads_its_own_text_and_nothing_else(telling, hallucinated, right):
    """One text gives the label away in nine of ten examples; the other texts are all alike."""
    examples = split([index % 2 == 0 for index in range(120)])
    spoiled = np.arange(120) % 10 == 7
    rows = [right if fine else hallucinated for fine in ~examples.hallucinated ^ spoiled]
    areas = {
        name: auc(one[None], examples.hallucinated)[0] for name, one in read_texts(answered(rows), examples).items()
    }
    told = {telling, "both_words"} if telling.endswith("words") else {telling}
    assert all(areas[name] > 0.85 if name in told else areas[name] < 0.6 for name in areas), areas


def plain_auc(logits: np.ndarray, positive: np.ndarray) -> float:
    return (logits[positive][:, None] > logits[~positive]).mean()


def test_the_gain_and_its_interval_are_those_of_resampled_clusters():
    generator = np.random.default_rng(3)
    subjects = generator.integers(0, 60, 240)
    positive = generator.random(240) < 0.5
    common = generator.normal(size=60)[subjects]
    better, worse = (positive * shift + common + generator.normal(size=240) for shift in (1.6, 0.8))
    measured = auc_gain(better, worse[None], positive, [f"s{number}" for number in subjects])
    members = [np.flatnonzero(subjects == number) for number in sorted(set(subjects))]
    gains = []
    for _ in range(1000):
        drawn = np.concatenate([members[index] for index in generator.integers(0, len(members), len(members))])
        gains.append(plain_auc(better[drawn], positive[drawn]) - plain_auc(worse[drawn], positive[drawn]))
    assert measured["gain"][0] == pytest.approx(plain_auc(better, positive) - plain_auc(worse, positive))
    ends = [measured["gain_low"][0], measured["gain_high"][0]]
    np.testing.assert_allclose(ends, np.quantile(gains, [0.025, 0.975]), atol=0.015)  # of a thousand draws


def test_the_best_layer_is_chosen_without_the_fold_that_it_scores():
    generator = torch.Generator().manual_seed(0)
    examples = split([index % 2 == 0 for index in range(100)])
    labels, folds = torch.from_numpy(examples.hallucinated).double(), torch.from_numpy(examples.splits[0].folds)
    states = torch.randn(3, 100, 8, generator=generator, dtype=torch.float64)
    states[1, :, 0] += 2 * labels
    losses = inner_losses(states, labels, cross_fitting(folds))
    assert losses.shape == (len(STRENGTHS), 3, 5)
    assert (losses.amin(0).argmin(0) == 1).all(), "the layer that knows the label"
    own = folds == 2
    spoiled = states.clone()
    spoiled[:, own] = torch.randn(3, int(own.sum()), 8, generator=generator, dtype=torch.float64) * 9
    flipped = torch.where(own, 1 - labels, labels)
    assert torch.equal(inner_losses(spoiled, flipped, cross_fitting(folds))[..., 2], losses[..., 2])
    logits = np.arange(300.0).reshape(3, 100)
    chosen = best_layer(logits, np.array([[0, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 1, 1, 0, 0]]), examples.splits[0].folds)
    expected = np.where(
        examples.splits[0].folds == 0, logits[0], np.where(examples.splits[0].folds < 3, logits[1], logits[2])
    )
    assert (chosen == expected).all()


def test_the_table_compares_every_place_with_the_same_readers_and_its_own_layers():
    examples = split([index % 2 == 0 for index in range(60)])
    draw = np.random.default_rng(0)
    strong = draw.normal(size=60) + 3 * examples.hallucinated
    places = {"answer_last": (draw.normal(size=60), strong), "final": (strong, draw.normal(size=60))}
    delta = pl.concat(
        pl.DataFrame({"id": examples.ids, "logit_clean_full": logits}).with_columns(
            layer=pl.lit(layer), component=pl.lit("resid"), position=pl.lit(name), intervention=pl.lit("exact_question")
        )
        for name, both in places.items()
        for layer, logits in enumerate(both)
    )
    best = {"answer_last": 1, "final": 0}
    layers = pl.DataFrame(
        {"component": "resid", "position": name, "intervention": "clean", "layer": layer}
        | {"inner_losses": [0.5 if layer == best[name] else 0.7] * 5}
        for name, layer in product(places, (0, 1))
    )
    keys = [{"id": name, "right": not wrong} for name, wrong in zip(examples.ids, examples.hallucinated, strict=True)]
    answers = pl.DataFrame(answered(keys)).with_columns(subject=pl.lit(None, pl.String), popularity=pl.lit(1))
    delta = delta.with_columns(repeat=pl.lit(0, pl.Int8))
    table = text_table(delta, layers, answers.reverse(), folds=5, seed=0, where="test")
    areas = {(row["position"], row["reader"]): row for row in table.to_dicts()}
    assert len(areas) == table.height == 14
    area = roc_auc_score(examples.hallucinated, strong)
    for place, first in (("answer_last", places["answer_last"][0]), ("final", strong)):
        assert areas[place, "best_layer"]["auc"] == pytest.approx(area)
        assert areas[place, "best_layer"]["gain"] is None
        assert areas[place, "first_layer"]["auc"] == pytest.approx(roc_auc_score(examples.hallucinated, first))
        gain = area - areas[place, "both_words"]["auc"]
        assert areas[place, "both_words"]["gain"] == pytest.approx(gain)
    assert areas["final", "first_layer"]["gain_low"] == areas["final", "first_layer"]["gain_high"] == 0


def real_answers() -> list[dict]:
    """What SmolLM2-135M-Instruct answered to 250 of the bundled questions."""
    gold = {row["question"]: [row["answer"]["value"], *row["answer"]["aliases"]] for row in bundled("triviaqa")}
    lines = (ROOT / "tests/cases/trained_answers.jsonl").read_text(encoding="utf-8").splitlines()
    return [{**row, "gold": gold[row["question"]]} for row in map(json.loads, lines)]


def two_candidates() -> list[dict]:
    """Answers with a second candidate, which is the right one in half of them. Nothing in their text tells in which."""
    names = list(dict.fromkeys(row["obj"] for row in bundled("popqa") if row["obj"].isalpha()))
    draw = np.random.default_rng(0)
    drawn = [draw.choice(names, 2, replace=False).tolist() for _ in range(160)]
    return [
        {
            "question": f"Which word is number {index}?",
            "answer": f"{one} or {other}",
            "gold": [other if index % 2 else "-x"],
        }
        for index, (one, other) in enumerate(drawn)
    ]


def by_the_alias(row: dict, tokenizer) -> dict:
    """The exact answer as the matched alias where there is one, which is not the rule."""
    text, offsets = decoded_offsets(tokenizer, row["generated_ids"])
    matched = find_gold(text.split("\n", 1)[0], row["gold"])
    tokens = tokens_over(offsets, [matched]) if matched else [row["exact_first"], row["exact_last"]]
    return row | {"exact_first": tokens[0], "exact_last": tokens[-1]}


@pytest.mark.parametrize(
    ("answers", "by_alias", "leaks"),
    [(real_answers, False, False), (two_candidates, False, False), (two_candidates, True, True)],
    ids=["a trained model's answers", "two candidates", "two candidates, by the alias"],
)
def test_random_weights_read_no_more_at_the_exact_answer_than_at_the_end(answers, by_alias, leaks, tokenizer, tmp_path):
    rows = []
    for index, row in enumerate(answers()):
        ids = tokenizer(f" {row['answer']}\n")["input_ids"]
        spans = [{"start": span.start, "end": span.end} for span in exact_question_spans(row["question"])]
        described = {"id": f"q{index:03}", "subject": None, "property": None, "popularity": None, "spans": spans}
        described["question_form"] = question_form(row["question"])
        graded = row | described | grade(tokenizer, ids, gold=row["gold"], question=row["question"])
        rows.append(by_the_alias(graded, tokenizer) if by_alias else graded)
    kept = analysed(pa.Table.from_pylist(rows), balance=True, seed=0)
    grid = Grid(("resid",), ("answer_last", "final"))
    with ActivationWriter(tmp_path, layers=2, width=32, dtype=torch.float32, made_from={}, grid=grid) as writer:
        workload = build_workload(tokenizer, prompts(), kept, positions=grid.positions)
        run_workload(Engine(tiny_model("llama", len(tokenizer), layers=2)), workload, writer)
    reader = ActivationReader([tmp_path], grid)
    examples = examples_of(reader.keys, folds=5, repeats=1, seed=0, where="test")
    last, final = (
        read_features(reader.read("resid", position, "first", "clean", layers=range(1, 2)).double(), examples)
        for position in grid.positions
    )
    gain = auc_gain(last, final[None], examples.hallucinated, examples.clusters)
    assert (gain["gain_low"][0] > 0) is np.bool_(leaks), gain
