"""Another second prompt changes the second prompt and nothing else, and its spread is what it says."""

import json
import shutil
from pathlib import Path
from statistics import stdev
from types import ModuleType

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.answer.prompts import BUNDLED_PROMPTS, build_prompt, encode
from anchorscope.files.identity import read_json
from anchorscope.probe.examples import examples_of
from anchorscope.probe.strengths import choose_strengths, cross_fitting
from anchorscope.text.content_words import content_spans
from anchorscope.text.normal_words import normal_words
from rounding import of_a_fit, of_a_pass
from small_things import ROOT, tiny_model

BUNDLED = read_json(BUNDLED_PROMPTS)


@pytest.fixture
def bench(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import bench_second_prompt

    return bench_second_prompt


def said(text: str) -> str:
    return " ".join(word for word, _ in normal_words(text))


def content(question: str) -> set[str]:
    return {said(question[span.start : span.end]) for span in content_spans(question)}


def test_other_prompts_have_the_bundled_ones_shape_and_ask_about_other_things(bench):
    asked = [shot["question"] for name in ("first", "second") for shot in BUNDLED["few_shot"][name]]
    for file in sorted((ROOT / "workflow/resources/questions").glob("*.jsonl")):
        asked += [json.loads(line)["question"] for line in file.read_text().splitlines()]
    known = set().union(*map(content, asked))
    seen: list[str] = []
    for shots in bench.OTHERS["few_shot"]:
        for name in ("first", "second"):
            assert sorted(map(kind, shots)) == sorted(map(kind, BUNDLED["few_shot"][name]))
        for question in (shot["question"] for shot in shots):
            assert content(question) - known, f"every content word of {question!r} stands in a bundled question"
            seen.append(question)
    assert len(set(seen)) == 12
    assert len({*bench.OTHERS["chat"], BUNDLED["chat"]["first"], BUNDLED["chat"]["second"]}) == 4


def kind(shot: dict[str, str]) -> str:
    """What sort of demonstration it is: an answer of yes or no, a question without capitals, a bridge, or another."""
    question, answer = shot["question"], shot["answer"]
    if answer in ("yes", "no"):
        return answer
    if question == question.lower():
        return "lower case"
    return "bridge" if question.startswith("In which") and question.endswith("born?") else "other"


def test_a_chat_model_reads_each_instruction_with_the_question_in_it(bench, tokenizer):
    for instruction in bench.OTHERS["chat"]:
        (encoded,) = encode(tokenizer, build_prompt(tokenizer, instruction), ["who wrote Emma"])
        assert "who wrote Emma" in tokenizer.decode([encoded.ids[token] for token in encoded.question_tokens])


def test_only_the_states_under_the_second_prompt_change(bench, finished, tokenizer, tmp_path, monkeypatch):
    shutil.copytree(finished / "results", tmp_path / "results", symlinks=True)
    monkeypatch.chdir(tmp_path)
    config = bench.settings(Path("results"))
    monkeypatch.setitem(bench.OTHERS, "few_shot", [BUNDLED["few_shot"]["second"], bench.OTHERS["few_shot"][0]])
    before = sorted(path for path in Path("results").rglob("*"))
    keys, (bundled, same, other) = bench.pairs_of(Path("results/activations/tiny/one"), config)
    assert sorted(path for path in Path("results").rglob("*")) == before
    model = tiny_model("llama", len(tokenizer), layers=2)
    for run, states in bundled.items():
        assert states.shape == (2, len(keys), 32)
        rounding = of_a_pass(model, 256, states)  # no sequence has more tokens
        assert (same[run] - states).abs().max() < rounding, "the bundled prompt, extracted again"
        assert torch.equal(other[run], states) == (run[0] == "first"), run
        assert run[0] == "first" or ((other[run] - states).abs().amax((0, 2)) > 10 * rounding).all()


@pytest.mark.slow
def test_the_bundled_pairs_honest_gaps_are_those_of_the_finished_run(bench, finished, monkeypatch):
    monkeypatch.chdir(finished)
    config = bench.settings(Path("results"))
    keys, (bundled, other, _) = bench.pairs_of(Path("results/activations/tiny/one"), config)
    found, moved = (bench.measure(pair, keys, np.arange(len(keys)), config) for pair in (bundled, other))
    place = {"dataset": "one", **config["headline"], "intervention": "exact_question", "rule": "honest"}
    series = pl.read_parquet("results/series.parquet").filter(**place, labels="plotted", anchor="gap")
    # A probability moves by at most a quarter of its logit: so do the clean and the cut one, in both groups.
    rounding = 100 * of_a_fit(bundled["first", "clean"], strengths(bundled, keys, config))
    for logits, headline in (("measured", "honest"), ("recentred", "recentred"), ("residual", "residual")):
        (area,) = series.filter(logits=logits)["area"]
        assert abs(found[headline].value - area) < rounding, headline
        assert logits == "residual" or abs(moved[headline].value - area) > rounding, "another prompt is noticed"
    assert bench.measure(bundled, keys, np.arange(30), config) == {}, "too few to probe"


def strengths(states: dict, keys: list[dict], config: dict) -> torch.Tensor:
    """Of the penalties of the first prompt's probes, which all others take: [repeats, layers, folds]."""
    splits = {name: config[name] for name in ("folds", "repeats", "seed")}
    examples = examples_of(keys, **splits, where="one")
    labels = torch.from_numpy(examples.hallucinated).float()
    folds = [torch.from_numpy(split.folds) for split in examples.splits]
    return torch.stack([choose_strengths(states["first", "clean"], labels, cross_fitting(some)) for some in folds])


def test_a_row_says_how_far_the_pairs_of_each_part_lie_apart(bench):
    parts = [[-1.0, -3.0, -2.0], [-5.0, -5.0, -8.0]]
    measured = [[{"honest": bench.HeadlineValue(value, 2.0 + value)} for value in pairs] for pairs in parts]
    row = bench.row(measured, "honest")
    assert [row[pair] for pair in bench.PAIRS] == [-3.0, -4.0, -5.0]
    assert row["spread"] == (2 + 3) / 2
    assert row["SD"] == pytest.approx(((stdev(parts[0]) ** 2 + stdev(parts[1]) ** 2) / 2) ** 0.5)
    assert row["width"] == pytest.approx(2.0 - 4.0)
    incomplete = [*measured, [{"honest": bench.HeadlineValue(9.0, 9.0)}, {}, {}]]
    assert bench.row(incomplete, "honest") == row
    assert bench.row(measured, "AUC") == {"headline": "AUC", "parts": 0}


def test_the_mean_over_sets_is_as_wide_as_independent_sets_make_it(bench):
    sets = [[[{"honest": bench.HeadlineValue(value, width)}]] for value, width in ((-1.0, 3.0), (-4.0, 4.0))]
    assert bench.averaged(sets) == [[{"honest": bench.HeadlineValue(-2.5, 2.5)}]]
    assert bench.averaged([*sets, [[{}]]]) == [[{}]]
