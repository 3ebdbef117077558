"""How far wrong labels would move the AUC and the honest gap: against plain loops, and where the answer is known."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score

from anchorscope.extract.axes import EXACT, PASSES, Headline
from anchorscope.probe.anchor_rules import FULL, HALF_A, SECOND_B
from anchorscope.probe.delta import Measured, delta_table, label_errors_table, layers_table
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.label_errors import DRAWS, ERRORS, SHARE, Labelling, labellings, turn_labels
from anchorscope.probe.scores import Logits, Scores, cross_fit_scores, distances, score_labellings
from anchorscope.summarise.pair_tables import label_errors
from plain_probe import PlainProbe
from rounding import assert_same, of_sums

HEADLINE = Headline("resid", "answer_last")
LAYERS, FOLDS = 2, 4
States = dict[tuple[str, str], torch.Tensor]


def make(count: int, width: int, signal: float) -> tuple[States, Examples]:
    """Each state tells the label; the cut turns the evidence of two in five around, under both prompts."""
    generator = torch.Generator().manual_seed(0)
    hallucinated = torch.arange(count) % 2 == 0
    evidence = signal * (2.0 * hallucinated - 1) + torch.randn(count, generator=generator)
    states = {}
    for prompt, intervention in PASSES:
        vectors = torch.randn(LAYERS, count, width, generator=generator)
        vectors[..., 0] = 0.3 * vectors[..., 0] + evidence
        if intervention == "exact_question":
            vectors[:, torch.arange(count) % 5 < 2, 0] *= -1
        states[prompt, intervention] = vectors
    keys = [
        {"id": f"{number:04d}", "right": not wrong, "subject": None, "popularity": None}
        for number, wrong in enumerate(hallucinated.tolist())
    ]
    return states, examples_of(keys, folds=FOLDS, repeats=1, seed=0, where="here")


def fitted(states: States, examples: Examples) -> tuple[Scores, pl.DataFrame, pl.DataFrame]:
    """What the probes say with the labels as they are, and the tables of it."""
    parts = {name: torch.from_numpy(part) for name, part in vars(examples.splits[0]).items()}
    scores = cross_fit_scores(states, torch.from_numpy(examples.hallucinated), **parts)
    first = {intervention: part for (prompt, intervention), part in states.items() if prompt == "first"}
    measured = Measured([scores], distances(first, parts["folds"]))
    names = {name: pl.lit(value) for name, value in vars(HEADLINE).items()}
    return scores, *(make(measured, examples).with_columns(**names) for make in (delta_table, layers_table))


def refitted(states: States, examples: Examples, drawn: list[Labelling], strengths: torch.Tensor) -> Logits:
    """What probes say that learnt these labels."""
    split = examples.splits[0]
    return score_labellings(
        states,
        labels=torch.from_numpy(np.array([one.hallucinated for one in drawn], bool).reshape(-1, len(examples.ids))),
        folds=torch.from_numpy(split.folds),
        halves=torch.from_numpy(split.halves),
        strengths=strengths,
    )


def moved(states: States, examples: Examples, drawn: list[Labelling], logits: Logits | None = None) -> pl.DataFrame:
    """By these logits, or by those of probes that learnt the labels that are drawn."""
    scores, delta, layers = fitted(states, examples)
    names = {name: pl.lit(value) for name, value in vars(HEADLINE).items()}
    logits = logits or refitted(states, examples, drawn, scores.strengths)
    mislabelled = label_errors_table(logits, drawn, examples).with_columns(**names)
    return label_errors(mislabelled.sample(fraction=1, shuffle=True, seed=0), delta, layers, HEADLINE)


def check(logits: Logits, states: States, examples: Examples, labels: np.ndarray, strengths: torch.Tensor) -> None:
    """Logits [layers, examples] are those of scikit-learn's probes, fitted to these labels one by one."""
    split, width = examples.splits[0], states["first", "clean"].shape[2]
    for (probe, name), found in logits.items():
        for (layer, fold), strength in np.ndenumerate(strengths.numpy()):
            clean, read = (states[probe.prompt, run][layer].numpy() for run in ("clean", name))
            held = split.folds == fold
            seen = ~held if probe.half is None else ~held & (split.halves == probe.half)
            plain = PlainProbe(clean, labels.astype(int), float(strength), np.flatnonzero(seen))
            rounding = plain.rounding(said_of=read[held], inner=width > seen.sum())
            assert_same(found[layer, held], plain(read[held]), rounding)


def slow_report(logits: Logits, labels: np.ndarray, best: int) -> list[float]:
    """The AUC at the best layer and over layers, and the gap, by loops over layers and examples."""
    areas = [roc_auc_score(labels, row) for row in logits[FULL, "clean"]]
    return [areas[best], np.mean(areas), np.mean([slow_gap(logits, layer) for layer in range(LAYERS)])]


def slow_gap(logits: Logits, layer: int) -> float:
    gaps = []
    for labelling, measuring in ((HALF_A, SECOND_B), (SECOND_B, HALF_A)):
        columns = [logits[probe, name][layer].tolist() for probe in (labelling, measuring) for name in ("clean", EXACT)]
        groups: dict[bool, list[float]] = {True: [], False: []}
        for own_clean, own_cut, clean, cut in zip(*columns, strict=True):
            verdict = 1 if clean >= 0 else -1
            confidence = [1 / (1 + np.exp(-verdict * logit)) for logit in (clean, cut)]
            groups[(own_clean >= 0) != (own_cut >= 0)].append(100 * (confidence[1] - confidence[0]))
        gaps.append(np.mean(groups[True]) - np.mean(groups[False]))
    return float(np.mean(gaps))


@pytest.mark.parametrize("width", [pytest.param(6, id="narrow"), pytest.param(100, id="wide", marks=pytest.mark.slow)])
def test_moves_are_those_of_probes_that_are_fitted_one_by_one(width):
    """What is reported is that of the library's own logits, which are those of such probes."""
    states, examples = make(count=120, width=width, signal=0.8)
    drawn = labellings(examples, seed=0)
    scores, _, layers = fitted(states, examples)
    logits = refitted(states, examples, drawn, scores.strengths)
    found = moved(states, examples, drawn, logits)
    best = layers.filter("is_reference")["layer"][0]
    assert found.select("errors", "draw").rows() == sorted((one.errors, one.draw) for one in drawn)
    as_they_are = {key: scores.logits[key] for key in logits}
    check(as_they_are, states, examples, examples.hallucinated, scores.strengths)
    before = slow_report(as_they_are, examples.hallucinated, best)
    for number, one in enumerate(drawn):
        own = {key: some[:, number] for key, some in logits.items()}
        check(own, states, examples, one.hallucinated, scores.strengths)
        row = found.filter(errors=one.errors, draw=one.draw).row(0, named=True)
        after = slow_report(own, one.hallucinated, best)
        for name, there, here in zip(("auc", "auc_over_layers", "gap"), after, before, strict=True):
            rounding = of_sums(2 * len(examples.ids), 100.0 if name == "gap" else 1.0)  # of either of two
            assert_same([row[name], row[f"{name}_move"]], [there, there - here], rounding)
        assert (row["n"], row["turned"], row["layer"]) == (120, (one.hallucinated != examples.hallucinated).sum(), best)
    assert found["gap_move"].abs().max() > 0.5, "nothing moved that could differ"


def test_no_turned_label_moves_nothing():
    """Probes that learn the labels as they are say the same, and nothing else is compared with it."""
    states, examples = make(count=120, width=100, signal=0.8)
    same = Labelling("random", 0, examples.hallucinated)
    scores, *_ = fitted(states, examples)
    again = refitted(states, examples, [same], scores.strengths)
    check({key: some[:, 0] for key, some in again.items()}, states, examples, same.hallucinated, scores.strengths)
    (row,) = moved(states, examples, [same], {key: scores.logits[key][:, None] for key in again}).to_dicts()
    assert (row["turned"], row["auc_move"], row["auc_over_layers_move"], row["gap_move"]) == (0, 0, 0, 0)


def test_without_a_draw_there_is_no_row():
    """Where each would leave a probe with one class only."""
    found = moved(*make(count=120, width=100, signal=0.8), [])
    assert found.is_empty()
    assert found.schema["gap_move"] == pl.Float64


def test_where_the_probe_is_always_right_the_auc_falls_by_as_much_as_it_must():
    """A turned label ranks like the others of its true class: above half of them, below the other half.

    With the share e of both classes wrong, of pairs (1 - e)^2 are in order, e^2 are not, and half of all others are:
    1 - e in all. With m wrong labels in the one class of n/2 + m, and none in the other: 1 - m / (n/2 + m) / 2.
    """
    states, examples = make(count=1000, width=6, signal=8.0)
    found = moved(states, examples, labellings(examples, seed=0))
    turned = SHARE * 1000
    one_sided = turned / (500 + turned) / 2
    assert (found["auc"] - found["auc_move"]).to_list() == pytest.approx([1.0] * len(found))
    for errors, expected in zip(ERRORS, (SHARE, one_sided, one_sided), strict=True):
        assert found.filter(errors=errors)["auc_move"].mean() == pytest.approx(-expected, abs=0.005)


@pytest.mark.parametrize("turned", [None, False, True])
def test_the_share_of_labels_is_turned_and_on_one_side_only_where_asked(turned):
    ids = [f"{number:03d}" for number in range(400)]
    labels = np.arange(400) % 2 == 0
    found = turn_labels(ids, labels, turned, "0 0")
    changed = found != labels
    assert changed.sum() == 8
    assert set(labels[changed]) == ({True, False} if turned is None else {turned})
    order = np.random.default_rng(0).permutation(400)
    again = turn_labels([ids[index] for index in order], labels[order], turned, "0 0")
    assert (again == found[order]).all(), "the choice is the ids', whatever their order"
    assert (turn_labels(ids, labels, turned, "0 1") != found).any()


def test_every_draw_of_every_kind_turns_other_labels():
    """Else a few labels turned at random would often be those that are turned on one side."""
    _, examples = make(count=400, width=1, signal=1.0)
    turned = {frozenset(np.flatnonzero(one.hallucinated != examples.hallucinated)) for one in labellings(examples, 0)}
    assert len(turned) == DRAWS * len(ERRORS)
    assert sum(map(len, turned)) - len(frozenset.union(*turned)) < 10, "hardly any label more than once"


def test_few_labels_of_an_unequal_class_are_turned_as_a_share_of_that_class():
    labels = np.arange(1000) >= 50
    ids = [str(number) for number in range(1000)]
    assert [(turn_labels(ids, labels, turned, "0") != labels).sum() for turned in (None, False, True)] == [20, 2, 38]


def test_a_draw_that_leaves_a_probe_with_one_class_is_left_out():
    """Half B has two right answers, in two folds. The fold that holds out the one learns from the other."""
    _, examples = make(count=120, width=6, signal=1.0)
    labels = examples.hallucinated
    drawn = {
        (errors, draw): turn_labels(examples.ids, labels, turned, f"0 {errors} {draw}") != labels
        for errors, turned in ERRORS.items()
        for draw in range(DRAWS)
    }
    needed = [np.flatnonzero(drawn["right_called_hallucinated", 1])[0], np.flatnonzero(~labels)[-1]]
    folds, halves = np.arange(120) // 2 % FOLDS, np.where(labels, np.arange(120) // 8 % 2, 0)
    folds[needed], halves[needed] = [0, 1], 1
    examples = replace(examples, splits=[replace(examples.splits[0], folds=folds, halves=halves)])
    found = [(one.errors, one.draw) for one in labellings(examples, seed=0)]
    assert found == [names for names, changed in drawn.items() if not changed[needed].any()]
    assert 0 < len(found) < len(drawn)
