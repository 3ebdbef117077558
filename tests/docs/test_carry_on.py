"""The additions that docs/carry_on.md works through, made to a copy of the project and run."""

import json
import os
import shutil
import subprocess

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from pages import blocks
from small_run import base_config, copy_project, rewind, snakemake, write_config
from small_things import ROOT

PAGE = ROOT / "docs/carry_on.md"
PATCHES = blocks(PAGE, "diff")


def apply(patch: str, folder, *options: str) -> None:
    outside = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}  # of any repository
    command = ["git", "apply", *options]
    done = subprocess.run(command, cwd=folder, input=patch, text=True, capture_output=True, env=outside)
    assert done.returncode == 0, done.stderr + patch


@pytest.fixture(scope="module")
def carried_on(finished, tmp_path_factory):
    """A small run with everything added that the page adds, the new component as its headline."""
    folder = rewind(finished, tmp_path_factory.mktemp("carried") / "on", "models")
    for patch in PATCHES:
        apply(patch, folder)
    rows = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    lines = [json.dumps({"question": row["question"], "answers": row["answer"]}) for row in rows]
    (folder / "webq.jsonl").write_text("\n".join(lines))
    (block,) = blocks(PAGE, "yaml")
    config = {**base_config(), **yaml.safe_load(block), "shard_size": 120, "headline": {"component": "mlp_in"}}
    config["components"] = ["resid", "attn", "mlp", "mlp_in"]
    write_config(folder, config)
    done = snakemake(folder, "figures")
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_there_is_a_patch_for_each_addition_and_each_stands_alone(tmp_path):
    assert len(PATCHES) == PAGE.read_text().count("\n## ") - 1 == 4  # the last section adds nothing
    folder = copy_project(tmp_path)
    for patch in PATCHES:
        apply(patch, folder, "--check")


@pytest.mark.slow
def test_the_new_intervention_is_in_the_summary_and_does_more_than_the_exact_words(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet").filter(rule="flip", anchor="all")
    found = summary.filter(intervention="whole_question")
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
        "whole_question",
    }
    folder = carried_on / "results/activations/tiny/webq/0000"
    read, made = (
        pq.read_table(folder / f"{name}.answer_last.parquet", columns=[f"{name}/answer_last/first/clean/01"])
        for name in ("mlp_in", "mlp")
    )
    assert read.column(0) != made.column(0)


@pytest.mark.slow
def test_the_new_layout_is_read(carried_on):
    questions = pl.read_parquet(carried_on / "results/questions/webq.parquet")
    raw = [json.loads(line) for line in (carried_on / "webq.jsonl").read_text().splitlines()]
    expected = {row["question"]: row["answers"] for row in raw}
    assert dict(questions.select("question", "gold").iter_rows()) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gap", "gap_column"])
def test_the_new_figure_is_drawn(carried_on, name):
    folder = carried_on / "results/figures/main"
    assert "Q − A" in (folder / f"{name}.svg").read_text()
    assert all((folder / f"{name}.{kind}").stat().st_size > 1000 for kind in ("png", "pdf"))
