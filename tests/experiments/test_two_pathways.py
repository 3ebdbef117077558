"""On a model with two pathways by construction, replaced tokens move what the question tells, and nothing else."""

from pathlib import Path

import polars as pl
import pytest
import torch

from anchorscope.engine.door import Engine
from anchorscope.experiments.score_replaced import score_experiment
from anchorscope.extract.axes import EXACT, HEADLINE, REPLACING
from anchorscope.extract.job import run_workload
from anchorscope.extract.sequences import build_replaced, build_workload
from anchorscope.extract.store import ActivationReader, ActivationWriter
from anchorscope.files.frames import write_frame
from anchorscope.probe.anchor_rules import Probe
from anchorscope.probe.delta import measure
from anchorscope.probe.kept import read_probes
from anchorscope.probe.logistic import FittedProbes
from two_pathways import HOME, examples, prompts, small_tokenizer, trained

LAYER = 2  # the last


@pytest.fixture(scope="module")
def scores(tmp_path_factory) -> pl.DataFrame:
    """The last layer's scores in all passes; `by_question`: only the question tells whether the answer is right."""
    folder, model, tokenizer = tmp_path_factory.mktemp("pathways"), trained(), small_tokenizer()
    table = examples(tokenizer)
    shape = {"layers": 3, "width": 64, "dtype": torch.float32, "made_from": {}, "grid": HEADLINE}
    tables = []
    with ActivationWriter(folder, **shape) as writer:
        built = build_workload(tokenizer, prompts(), table, positions=HEADLINE.positions)
        run_workload(Engine(model, 2048), built, writer)
    probes = main_runs_probes(folder, tmp_path_factory.mktemp("probes") / "probes.parquet")
    for name in REPLACING:
        with ActivationWriter(folder, **shape, knockout=name) as writer:
            built = build_replaced(
                tokenizer,
                prompts()["first"],
                table,
                asked=table,
                experiment=name,
                positions=HEADLINE.positions,
            )
            run_workload(Engine(model, 2048), built, writer)
        reader = ActivationReader([folder], HEADLINE, [EXACT, name])
        tables.append(score_experiment(reader, name, probes, folds=5, seed=0, where="here", on_gpu=False))
    person = pl.col("cluster").is_in(list(HOME))
    return pl.concat(tables).filter(layer=LAYER).with_columns(by_question=person)


def main_runs_probes(activations: Path, file: Path) -> list[dict[Probe, FittedProbes]]:
    """As the probe stage writes them, read back."""
    reader = ActivationReader([activations], HEADLINE, [EXACT])
    (probes,) = measure(reader, folds=5, repeats=2, seed=0, where="here").probes
    write_frame(file, probes, {})
    return read_probes(file)


def judged_right(scores: pl.DataFrame, intervention: str, by_question: bool) -> pl.DataFrame:
    """Right answers that were judged right, as in the published figure."""
    mine = scores.filter(intervention=intervention, by_question=by_question, hallucinated=False)
    return mine.filter(pl.col("p_clean") < 0.5)


def test_the_probe_reads_both_kinds(scores):
    clean = scores.filter(intervention="answer_only")
    for kind in (True, False):
        mine = clean.filter(by_question=kind)
        assert ((mine["p_clean"] > 0.5) == mine["hallucinated"]).mean() > 0.9


@pytest.mark.parametrize("intervention", ["patch_question", "patch_right"])
def test_another_questions_words_flip_what_the_question_tells_and_not_what_the_answer_tells(scores, intervention):
    by_question, by_answer = (judged_right(scores, intervention, kind) for kind in (True, False))
    assert by_question["flips"].mean() > 0.8
    assert by_answer["flips"].mean() < 0.1


def test_other_tokens_of_the_same_donor_flip_neither(scores):
    for kind in (True, False):
        mine = judged_right(scores, "patch_random", kind)
        assert mine["replaced"].min() > 0
        assert mine["flips"].mean() < 0.1


def test_an_answer_alone_moves_what_the_question_tells_and_not_what_the_answer_tells(scores):
    """Without a question, right and wrong places look alike, wherever the probe's threshold lies."""
    alone = scores.filter(intervention="answer_only")
    by_question, by_answer = (alone.filter(by_question=kind) for kind in (True, False))
    assert by_question["delta_p"].mean() < -25
    assert abs(by_answer["delta_p"].mean()) < 5
    wrong, right = (by_question.filter(hallucinated=kind)["p_ko"].mean() for kind in (True, False))
    assert abs(wrong - right) < 0.1


def test_after_an_unrelated_question_only_the_answer_that_tells_itself_stays_right(scores):
    by_question, by_answer = (judged_right(scores, "answer_after_other", kind) for kind in (True, False))
    assert by_question["flips"].mean() > 0.8
    assert abs(by_answer["delta_p"].mean()) < 5
