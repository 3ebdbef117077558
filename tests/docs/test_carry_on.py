"""The additions that docs/carry_on.md works through, made to a copy of the project and run."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from pages import blocks
from rounding import assert_same, of_sums
from small_run import base_config, copy_project, rewind, snakemake, write_config
from small_things import ROOT

PAGE = ROOT / "docs/carry_on.md"
SECTIONS = dict(re.findall(r"^## Add (.*?)\n(.*?)(?=^## )", PAGE.read_text(), re.M | re.S))
# The page's own sentences say where a piece belongs, so that its readers and this test go by the same words.
CODE = r":\n\n```(?:py|rst)\n(.*?)^```$"
NEW = re.compile(rf"^New file `([^`]+)`{CODE}", re.M | re.S)
INSERT = re.compile(rf"^In `([^`]+)`, add (before|to) `([^`]+)`(?:{CODE}|\sthe line\s`([^`]+)`)", re.M | re.S)
REPLACE = re.compile(r"^In `([^`]+)`, replace\s`([^`]+)`\swith\s`([^`]+)`", re.M)


def carry_on(section: str, folder: Path) -> list[Path]:
    """Make the additions of a section to the project in `folder`; the files that are new or changed."""
    changed = []
    for name, code in NEW.findall(section):
        (folder / name).write_text(code)
        changed.append(folder / name)
    for name, how, anchor, code, line in INSERT.findall(section):
        path = folder / name
        path.write_text(inserted(path.read_text(), how, anchor, code or f"{line}\n"))
        changed.append(path)
    for name, old, new in REPLACE.findall(section):
        path = folder / name
        text = path.read_text()
        assert old in text, f"{name} has no {old}"
        path.write_text(text.replace(old, new))
        changed.append(path)
    return changed


def inserted(text: str, how: str, anchor: str, code: str) -> str:
    """`code` before the one line that begins with `anchor`, or at the end of the list or dict of that name."""
    begins = re.escape(anchor)
    pattern = rf"^(?=( *){begins})" if how == "before" else rf"^{begins}\b.*?\n(?=()[\])}}])"
    places = list(re.finditer(pattern, text, re.M | (0 if how == "before" else re.S)))
    assert len(places) == 1, f"{len(places)} places to add {how} {anchor}"
    (place,) = places
    if how == "to":
        code = f"{code.rstrip().removesuffix(',')},\n"
    code = textwrap.indent(code, place[1] if how == "before" else "    ")
    gap = "\n\n" if code.startswith(("def ", "@")) else ""
    return text[: place.end()] + code + gap + text[place.end() :]


# One pass for a bias on one of four heads, in the mask that the model's own code adds to its scores.
BIASED = """
import numpy as np, torch
from anchorscope.engine.self_check import choose_path
from anchorscope.engine.work import HeadBias, Variant, Work
from engines import collected, engine_on
from rounding import assert_same, of_a_pass
from small_things import tiny_model

ids, start = np.random.default_rng(0).integers(5, 200, 16), 11
of_keys = np.zeros(16, np.float32)
of_keys[[3, 5]] = 2.0
variant = Variant(ids, read=[15], bias=HeadBias(start, of_keys, head=2, heads=4))
model = tiny_model("llama", 200, layers=2)
path = choose_path(model, ids.tolist(), 4)
work = Work([[[variant]]], ["resid"], range(2))
packed, plain = (collected(engine_on(path, model, way), work)[0, :, 0] for way in ("packed", "plain"))

def shifting(module, args, kwargs):
    mask = kwargs["attention_mask"].expand(1, 4, -1, -1).clone()
    mask[0, 2, start:] += torch.from_numpy(of_keys)
    return args, {**kwargs, "attention_mask": mask}

slow, kept = tiny_model("llama", 200, layers=2, attention="eager"), []
for layer in slow.get_decoder().layers:
    layer.self_attn.register_forward_pre_hook(shifting, with_kwargs=True)
    layer.register_forward_hook(lambda module, args, out: kept.append(out[0, -1]))
with torch.inference_mode():
    slow(torch.from_numpy(ids)[None])
expected = torch.stack(kept)
for found in (packed, plain):
    assert_same(found, expected, of_a_pass(slow, 16, expected))
clean = collected(engine_on(path, model), Work([[[Variant(ids, read=[15])]]], ["resid"], range(2)))[0, :, 0]
assert (clean - expected).abs().max() > 0.01, "nothing happened that could differ"
"""


# The new method beside the plain probe fitted to the last layer alone.
LAST_LAYER = """
from anchorscope.detect.fits import Fits, every_method
from anchorscope.detect.methods import METHODS
from anchorscope.detect.scoring import training_sets_of
from planted_detection import World, probes_of_layers

world = World("two directions", seed=0)
reading = world.reading()
probes = probes_of_layers(world, reading)
told = every_method(Fits(reading, probes, training_sets_of(reading), reading.folds, seed=0))
assert list(told) == [name for name in METHODS if name in told] and list(told)[-1] == "last_layer"
assert told["last_layer"].scores.equal(probes.logits[-1])
assert not told["last_layer"].scores.equal(told["probe"].scores)
"""


@pytest.fixture(scope="module")
def carried_on(finished, tmp_path_factory):
    """A small run with everything added that the page adds, the new component as its headline."""
    folder = rewind(finished, tmp_path_factory.mktemp("carried") / "on", "models")
    for section in SECTIONS.values():
        carry_on(section, folder)
    rows = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    lines = [json.dumps({"question": row["question"], "solutions": row["answer"], "round": "first"}) for row in rows]
    (folder / "quiz.jsonl").write_text("\n".join(lines))
    (block,) = blocks(PAGE, "yaml")
    config = {**base_config(), **yaml.safe_load(block), "shard_size": 120, "headline": {"component": "mlp_in"}}
    config |= {"components": ["resid", "attn", "mlp", "mlp_in"], "interventions": ["function_words"]}
    config |= {"positions": ["answer_last", "answer_first"], "experiments": ["length"]}
    write_config(folder, config)
    done = snakemake(folder, "figures")
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_every_piece_of_the_page_belongs_to_an_addition():
    assert list(SECTIONS) == [
        "an intervention",
        "a variant",
        "a component",
        "a position",
        "a dataset",
        "a figure",
        "a claim",
        "a detection method",
        "an experiment",
    ]
    for beginning, pattern in {"New file `": NEW, ", add ": INSERT, ", replace": REPLACE}.items():
        read = sum(len(pattern.findall(section)) for section in SECTIONS.values())
        assert read == PAGE.read_text().count(beginning) > 0, beginning


@pytest.mark.parametrize("name", SECTIONS)
def test_each_addition_stands_alone(name, tmp_path):
    for path in carry_on(SECTIONS[name], copy_project(tmp_path)):
        if path.suffix == ".py":
            ast.parse(path.read_text())


def test_what_needs_no_run_does_what_the_page_says(tmp_path):
    copy_project(tmp_path)
    for section in ("a variant", "a detection method"):
        carry_on(SECTIONS[section], tmp_path)
    paths = [str(tmp_path / "workflow"), str(ROOT / "tests/helpers")]
    done = subprocess.run(
        [sys.executable, "-c", BIASED + LAST_LAYER],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_new_intervention_is_in_the_summary_and_does_something_else_than_the_exact_words(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet").filter(rule="flip", anchor="all")
    found = summary.filter(intervention="function_words")
    known = summary.filter(intervention="exact_question")
    assert len(found) == len(known) > 0
    assert found["delta_p"].is_finite().all()
    assert (found["delta_p"] != known["delta_p"]).any()


@pytest.mark.slow
def test_the_new_component_is_kept_and_probed(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet")
    assert set(summary["component"]) == {"resid", "attn", "mlp", "mlp_in"}
    assert set(pl.read_parquet(carried_on / "results/deepest.parquet")["intervention"]) == {
        "exact_question",
        "random_question",
        "function_words",
        "random_function_words",
    }
    folder = carried_on / "results/activations/tiny/quiz/0000"
    read, made = (
        pq.read_table(folder / f"{name}.answer_last.parquet", columns=[f"{name}/answer_last/first/clean/01"])
        for name in ("mlp_in", "mlp")
    )
    assert read.column(0) != made.column(0)


@pytest.mark.slow
def test_the_new_layout_is_read(carried_on):
    questions = pl.read_parquet(carried_on / "results/questions/quiz.parquet")
    raw = [json.loads(line) for line in (carried_on / "quiz.jsonl").read_text().splitlines()]
    expected = {row["question"]: row["solutions"] for row in raw}
    assert dict(questions.select("question", "gold").iter_rows()) == expected
    assert set(questions["property"]) == {"first"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gap", "gap_column"])
def test_the_new_figure_is_drawn(carried_on, name):
    folder = carried_on / "results/figures/main"
    assert "Q − A" in (folder / f"{name}.svg").read_text()
    assert all((folder / f"{name}.{kind}").stat().st_size > 1000 for kind in ("png", "pdf"))


@pytest.mark.slow
def test_the_new_position_is_kept_and_probed(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet")
    assert set(summary["position"]) == {"answer_last", "answer_first"}
    folder = carried_on / "results/activations/tiny/quiz/0000"
    chosen = pl.read_parquet(carried_on / "results/chosen/tiny/quiz/0000.parquet")
    longer = dict(chosen.select("id", pl.col("exact_last") > pl.col("exact_first")).iter_rows())
    last, first = (
        dict(
            pl.read_parquet(folder / f"mlp.{place}.parquet", columns=["id", f"mlp/{place}/first/clean/01"]).iter_rows()
        )
        for place in ("answer_last", "answer_first")
    )
    assert {name: first[name] != last[name] for name in last} == longer
    assert set(longer.values()) == {True, False}


@pytest.mark.slow
def test_the_new_claims_are_judged(carried_on):
    found = json.loads((carried_on / "results/claims.json").read_text())
    assert found["statements"]["12"] == "the Question-Anchored curve recovers after its deepest layer"
    assert found["statements"]["13"] == "Question-Anchored answers are longer"
    assert {row["claim"] for row in found["claims"]} == {1, 2, 3, 4, 5, 6, 12, 13}


@pytest.mark.slow
def test_the_new_experiment_counts_words(carried_on):
    table = pl.read_parquet(carried_on / "results/length.parquet").filter(stratum="all", layer=0, rule="flip")
    means = {row["anchor"]: row["value"] for row in table.to_dicts()}
    words = pl.read_parquet(carried_on / "results/chosen/tiny/quiz/0000.parquet")["answer"].str.count_matches(r"\S+")
    assert words.min() < min(means["question"], means["answer"]) <= words.mean()
    assert words.mean() <= max(means["question"], means["answer"]) < words.max()
    assert_same(means["gap"], means["question"] - means["answer"], of_sums(len(words), float(words.max())))
    assert "words" in (carried_on / "results/figures/main/length.svg").read_text()
