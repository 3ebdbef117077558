"""A detector's probes are those of the probe stage, its file is whole or refused, and its card says what it is."""

import json
from copy import copy
from importlib.metadata import version

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import save_file

from anchorscope.detect.detector_file import ABOUT, DETECTOR_SEAL, DetectorProbes, read_detector, write_detector
from anchorscope.detect.train_detector import cross_fit, train, train_detector
from anchorscope.extract.store import ActivationReader
from anchorscope.files.sealed_parquet import provenance
from anchorscope.probe.delta import measure
from anchorscope.probe.examples import examples_of
from anchorscope.probe.logistic import FittedProbes, fit, log_loss
from anchorscope.probe.pooled import PooledReader
from anchorscope.probe.strengths import CHOICE_TOLERANCE, STRENGTHS
from planted_detector import FITTING, LAYERS, SOURCES, WIDTH, about, manifest, write_activations
from rounding import assert_same, of_probes, of_sums


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> ActivationReader:
    return ActivationReader([write_activations(tmp_path_factory.mktemp("planted"), seed=0).parent])


@pytest.fixture(scope="module")
def examples(reader):
    return examples_of(reader.keys, folds=5, repeats=1, seed=0, where="planted")


@pytest.fixture(scope="module")
def clean(reader) -> torch.Tensor:
    return reader.read("resid", "answer_last", "first", "clean", range(LAYERS))


def detector_probes(clean, examples) -> list[DetectorProbes]:
    """Without each fold, and of all examples."""
    return train(clean, torch.from_numpy(examples.hallucinated), torch.from_numpy(examples.splits[0].folds))


def rounding_of(probes: DetectorProbes, clean, examples, fold: int) -> float:
    """Of the logits of probes that saw all examples but those of one fold, and are fitted again."""
    weight = probes.weight / probes.scale
    plain = FittedProbes(
        weight[:, None], (probes.bias - (weight * probes.mean).sum(1))[:, None], converged=torch.ones(LAYERS, 1)
    )
    train = torch.from_numpy(examples.splits[0].folds != fold)[None]
    return of_probes(plain, clean, torch.from_numpy(examples.hallucinated), train, probes.strength[:, None])


def test_a_detector_without_a_fold_gives_the_p_of_that_fold_in_the_delta_table(reader, examples, clean):
    delta, *_ = measure(reader, folds=5, repeats=2, seed=0, where="planted")
    first = delta.filter(pl.col("repeat") == 0, pl.col("intervention") == "exact_question").sort("layer", "id")
    expected = first["p_clean"].to_numpy().reshape(LAYERS, -1)
    folds = examples.splits[0].folds
    assert (first["fold"].to_numpy().reshape(LAYERS, -1) == folds).all()
    for fold, probes in enumerate(detector_probes(clean, examples)[:-1]):
        p = torch.sigmoid(probes.logits(clean)).numpy()
        rounding = rounding_of(probes, clean, examples, fold) / 4  # a chance moves by at most a quarter of its logit
        assert_same(p[:, folds == fold], expected[:, folds == fold], rounding)
        assert np.abs(p[:, folds != fold] - expected[:, folds != fold]).max() > 1e-2, "they saw the others"


def test_a_detector_without_a_fold_knows_nothing_of_it(examples, clean):
    changed = clean.clone()
    changed[:, examples.splits[0].folds == 2] = torch.randn(
        LAYERS, 1, WIDTH, generator=torch.Generator().manual_seed(1)
    )
    before, after = (detector_probes(states, examples)[2] for states in (clean, changed))
    for name in ("mean", "scale", "strength", "inner_loss"):
        assert torch.equal(vars(after)[name], vars(before)[name]), name
    assert_same(after.logits(clean), before.logits(clean), rounding_of(before, clean, examples, 2))


def test_the_strength_for_all_examples_has_the_least_loss_over_all_inner_folds(examples, clean):
    """The slow way: every strength is fitted on three folds and judged on each of the two others."""
    labels, folds = torch.from_numpy(examples.hallucinated).double(), torch.from_numpy(examples.splits[0].folds)
    losses, roundings = torch.zeros(len(STRENGTHS), LAYERS), np.zeros(len(STRENGTHS))
    for number, strength in enumerate(STRENGTHS):
        for i in range(5):
            j = (i + 1) % 5
            seen = (folds != i) & (folds != j)
            strengths = torch.full((LAYERS, 1), strength)
            probes = fit(clean.double(), labels, seen[None], strengths)
            logits = probes.logits(clean.double()).expand(-1, 2, -1)
            losses[number] += log_loss(logits, labels, torch.stack([folds == i, folds == j])).sum(1) / 10
            searched = FittedProbes(probes.weight.float(), probes.bias.float(), probes.converged)
            learnt = (clean, labels, seen[None], strengths)
            rounding = of_probes(searched, *learnt, tolerance=CHOICE_TOLERANCE)  # no loss moves farther than its logits
            roundings[number] = max(roundings[number], rounding)
    *_, found = detector_probes(clean, examples)
    assert found.strength.tolist() == [STRENGTHS[index] for index in losses.argmin(0)]
    assert_same(found.inner_loss, losses.amin(0), roundings[losses.argmin(0)].max())
    assert found.best_layer == int(losses.amin(0).argmin()) == LAYERS - 1, "where the label is told best"


def test_weights_are_of_standardised_states(examples, clean):
    *_, found = detector_probes(clean, examples)
    mean, scale = clean.double().mean(1), clean.double().std(1, correction=0)
    assert_same(found.mean, mean, of_sums(1, float(mean.abs().max()), np.float32))
    assert_same(found.scale, scale, of_sums(1, float(scale.max()), np.float32))
    units = (clean[:, :9].double() - mean[:, None]) / scale[:, None]
    expected = [[float(one @ found.weight[layer].double()) for one in units[layer]] for layer in range(LAYERS)]
    logits = found.logits(clean[:, :9]) - found.bias[:, None]
    sizes = (clean.abs().amax(1) + mean.abs()) / scale * found.weight.abs()  # what a logit adds up, and less the bias
    assert_same(logits, expected, of_sums(WIDTH + 2, float((sizes.sum(1) + found.bias.abs()).max()), np.float32))


def test_a_state_that_never_varies_does_no_harm(examples, clean):
    constant = clean.clone()
    constant[:, :, 5] = 7.0
    *_, found = detector_probes(constant, examples)
    assert (found.weight[:, 5] == 0).all()
    assert (found.scale[:, 5] == 1).all()
    assert found.logits(constant).isfinite().all()


def test_layers_are_the_same_in_one_chunk_or_in_several(reader, examples, monkeypatch):
    pooled = PooledReader({"one": reader})
    whole = cross_fit(pooled, examples, on_gpu=False)
    monkeypatch.setattr("anchorscope.probe.delta.CHUNK_BYTES", 1)  # a layer at a time
    parts = cross_fit(pooled, examples, on_gpu=False)
    clean = reader.read("resid", "answer_last", "first", "clean", range(LAYERS))
    rounding = max(
        rounding_of(probes, clean, examples, fold) for fold, probes in enumerate(detector_probes(clean, examples))
    )
    assert_same(parts.logits, whole.logits, rounding)
    assert_same(parts.chosen, whole.chosen, rounding)
    assert parts.probes.best_layer == whole.probes.best_layer


def test_a_question_of_two_datasets_has_two_ids_and_one_fold(reader):
    pooled = PooledReader({"one": reader, "two": reader})
    examples = examples_of(pooled.keys, folds=5, repeats=1, seed=0, where="pooled")
    count = len(reader.keys)
    assert len(set(examples.ids)) == 2 * count
    assert pooled.datasets.tolist() == ["one"] * count + ["two"] * count
    folds = examples.splits[0].folds
    assert (folds[:count] == folds[count:]).all()


@pytest.mark.parametrize(
    ("first", "second"),
    [(("q1", "Emma"), ("q1", None)), (("q1", "The King"), ("q2", "king")), (("q1", None), ("q1", None))],
    ids=["one names the subject", "subjects spelt otherwise", "no subject"],
)
def test_examples_of_two_datasets_that_share_a_question_or_a_subject_are_one_cluster(reader, first, second):
    def of(example: tuple[str, str | None]) -> ActivationReader:
        other = copy(reader)
        other.keys = [{**reader.keys[0], "id": example[0], "subject": example[1]}]
        return other

    (one, two) = PooledReader({"one": of(first), "two": of(second)}).keys
    assert one["subject"] == two["subject"] == (first[1] or first[0])
    assert (one["id"], two["id"]) == (f"one/{first[0]}", f"two/{second[0]}")


@pytest.fixture
def written(examples, clean, tmp_path):
    *_, probes = detector_probes(clean, examples)
    target = tmp_path / "detectors/tiny.safetensors"
    write_detector(target, probes, about("hash"), provenance(stage="train_detector"))
    return target, probes


def test_what_is_written_is_read_again(written):
    path, probes = written
    found, described = read_detector(path)
    assert described == about("hash")
    for name, values in vars(probes).items():
        assert torch.equal(vars(found)[name], values), name


def test_a_damaged_file_is_refused_wherever_the_damage_is(written):
    path, _ = written
    whole = path.read_bytes()
    for place in (9, len(whole) // 2, len(whole) - 1, whole.index(b"few_shot")):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"tiny\.safetensors (is damaged|cannot be read|is no detector)"):
            read_detector(path)
    path.write_bytes(whole[:-8])
    with pytest.raises(ValueError, match="cannot be read as safetensors"):
        read_detector(path)


def test_a_foreign_file_is_refused(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=f"is no detector: its header has no {ABOUT}"):
        read_detector(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="does not exist"):
        read_detector(tmp_path / "gone.safetensors")
    save_file({"weight": torch.zeros(2)}, tmp_path / "x.safetensors", {ABOUT: json.dumps({}), DETECTOR_SEAL: "0"})
    with pytest.raises(ValueError, match="is damaged"):
        read_detector(tmp_path / "x.safetensors")


def make(folder, weights: str, names: dict[str, int]) -> tuple:
    """A detector from datasets with so many right answers each."""
    files = {
        name: [write_activations(folder / name, seed=seed, right=count)]
        for seed, (name, count) in enumerate(names.items())
    }
    manifest("hash", weights).write(folder / "tiny.json")
    target, card = folder / "tiny.safetensors", folder / "tiny.md"
    train_detector(files, folder / "tiny.json", target, card, sources=SOURCES, fitting=FITTING)
    return target, card.read_text()


def plain_auc(logits: np.ndarray, positive: np.ndarray) -> float:
    """How often a hallucinated answer outranks a right one, pair by pair."""
    wins = [float(a > b) + 0.5 * float(a == b) for a in logits[positive] for b in logits[~positive]]
    return sum(wins) / len(wins)


def test_the_card_says_what_the_detector_is(tmp_path):
    target, card = make(tmp_path, "random", {"one": 60, "two": 50, "few": 5})
    probes, described = read_detector(target)
    assert (described.datasets, described.examples) == (["one", "two"], 230)
    assert described.layer == probes.best_layer
    pooled = PooledReader({name: ActivationReader([tmp_path / name]) for name in ("one", "two")})
    examples = examples_of(pooled.keys, folds=5, repeats=1, seed=0, where="pooled")
    fitted = cross_fit(pooled, examples, on_gpu=False)
    rows = {row.split(" | ")[0].strip("| "): row.split(" | ")[1:] for row in card.splitlines() if row.startswith("| ")}
    for name, who in (("all", pooled.datasets != ""), ("two", pooled.datasets == "two")):
        area = plain_auc(fitted.chosen[who], examples.hallucinated[who])
        right, wrong, found, interval, *_ = rows[name]
        assert (int(right), int(wrong)) == ((110, 120) if name == "all" else (50, 60))
        assert float(found) == pytest.approx(area, abs=0.5001e-3), "to three decimals: the same fits, in one process"
        low, high = map(float, interval.split(" to "))
        assert low < area < high
    assert "few: 5 right and 60 hallucinated answers are too few to probe" in card
    assert "weights of this model are random" in card
    assert "two: questions that come with Anchorscope" in card
    for fixed in ("fedcba9876543210", "hash", "0123456789abcdef", version("torch")):
        assert fixed in card


def test_a_detector_made_twice_has_the_same_bytes_and_reads_as_before(written, tmp_path):
    _, probes = written
    header = {f"key {number}": str(number) for number in range(20)}
    for name in ("one", "two"):
        write_detector(tmp_path / name, probes, about("hash"), header)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    found, described = read_detector(tmp_path / "one")
    assert described == about("hash")
    assert torch.equal(found.weight, probes.weight)


def test_each_fold_has_a_layer_that_was_chosen_without_it(reader, examples, clean):
    fitted = cross_fit(PooledReader({"one": reader}), examples, on_gpu=False)
    folds = examples.splits[0].folds
    for fold, probes in enumerate(detector_probes(clean, examples)[:-1]):
        own = probes.logits(clean)[probes.best_layer].numpy()
        assert_same(fitted.chosen[folds == fold], own[folds == fold], rounding_of(probes, clean, examples, fold))


def test_where_nothing_can_be_probed_file_and_card_say_why(tmp_path):
    target, card = make(tmp_path, "trained", {"few": 5})
    assert "No detector for tiny" in card
    assert "few: 5 right and 60 hallucinated answers are too few to probe" in card
    with pytest.raises(ValueError, match="holds no detector: few: 5 right"):
        read_detector(target)
