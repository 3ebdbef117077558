"""The default run: a real language model on the bundled questions, from nothing to the figure.

In every run of the tests on a few dozen questions of one set; all of it with --all, which then also looks at numbers.
"""

import os
import re
import shutil
import subprocess
import sys

import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from transformers import AutoConfig

from anchorscope.draw.kinds import kinds_drawn
from anchorscope.needs import needs
from small_run import SNAKEMAKE, copy_project, jobs
from small_things import ROOT

MIDDLE = range(15, 19)  # of SmolLM2's 30 layers
SLICE = {"questions": 40, "shard_size": 40, "bootstrap_draws": 100}
WHOLE = pytest.param("whole", marks=pytest.mark.slow)
of_the_whole = pytest.mark.parametrize("default_run", [WHOLE], indirect=True)


@pytest.fixture(scope="module", params=["a slice", WHOLE])
def default_run(request, tmp_path_factory):
    """A finished default run in a copy of the project, or a slice of one."""
    folder = copy_project(tmp_path_factory.mktemp("default"))
    if request.param != "whole":
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["datasets"] = {"nq-mini": config["datasets"]["nq-mini"]}
        (folder / "config.yaml").write_text(yaml.safe_dump(config | SLICE, sort_keys=False))
    done = subprocess.run([*SNAKEMAKE, "--cores", "all"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    yield folder
    shutil.rmtree(folder)  # its activations take a gigabyte


def datasets(folder) -> dict[str, dict]:
    return yaml.safe_load((folder / "config.yaml").read_text())["datasets"]


def series(folder, **wanted: str) -> pl.DataFrame:
    summary = pl.read_parquet(folder / "results/summary.parquet")
    return summary.filter(component="resid", position="answer_last", **wanted).filter(pl.col("layer").is_in(MIDDLE))


def test_the_model_is_right_on_a_part_of_each_set(default_run):
    table = pl.read_csv(default_run / "results/examples.csv")
    assert table.height == len(datasets(default_run))
    assert table.select((pl.col("right") / pl.col("asked")).is_between(0.15, 0.85).all()).item()


@of_the_whole
@pytest.mark.parametrize("rule", ["flip", "honest"])
def test_question_anchored_lies_below_answer_anchored_in_the_middle_layers_of_most_sets(default_run, rule):
    """In every middle layer, and by the interval of the mean over all layers."""
    names = {"rule": rule, "anchor": "gap", "intervention": "exact_question", "labels": "plotted", "logits": "measured"}
    below = series(default_run, **names).group_by("dataset").agg((pl.col("delta_p") < 0).all())
    assert below["delta_p"].sum() >= 3, below
    whole = pl.read_parquet(default_run / "results/series.parquet").filter(**names)
    assert (whole["area_high"] < 0).sum() >= 3, whole


@of_the_whole
def test_the_random_control_is_flat(default_run):
    control = series(default_run, rule="flip", anchor="all", intervention="random_question")
    knockout = series(default_run, rule="flip", anchor="all", intervention="exact_question")
    assert control["delta_p"].abs().max() < 5
    assert knockout["delta_p"].min() < -3 * control["delta_p"].abs().max()


@of_the_whole
def test_the_probe_reads_a_signal_that_the_knockout_destroys_in_most_sets(default_run):
    layers = pl.concat(pl.read_parquet(path) for path in (default_run / "results/layers").rglob("*.parquet"))
    best = layers.filter(component="resid", position="answer_last").filter("is_reference")
    clean = best.filter(intervention="clean")["auc"]
    cut = best.filter(intervention="exact_question")["auc"]
    assert best.filter(intervention="clean")["better_than_chance"].sum() >= 3
    assert (clean - cut > 0.1).sum() >= 3
    assert layers["unconverged_folds"].list.len().max() == 0


def test_figures_are_there_in_three_formats_and_name_the_bundled_questions(default_run):
    folder = default_run / "results/figures/smollm2"
    assert not list(folder.glob("grid*")), "one component at one position makes no grid"
    for name in ("family", "honest", "auc", "share", "distribution"):
        for width in ("", "_column"):
            for kind in ("png", "pdf", "svg"):
                assert (folder / f"{name}{width}.{kind}").stat().st_size > 10_000
            drawn = (folder / f"{name}{width}.svg").read_text()
            assert "not the published" in drawn
            assert next(iter(datasets(default_run).values()))["title"] in drawn


def test_the_report_holds_the_figures_and_asks_for_nothing_from_outside(default_run):
    results = default_run / "results"
    text = re.sub("<script.*?</script>", "", (results / "report.html").read_text(), flags=re.S)
    assert text.count("<picture>") == len(kinds_drawn(1, words=1, windows=1))
    assert "not the published datasets" in text
    for address in re.findall(r"(?:src|href)=\"([^\"]+)", text):
        assert address.startswith(("data:", "#")) or (results / address).is_file(), address


def test_a_second_run_does_nothing(default_run):
    done = subprocess.run([*SNAKEMAKE, "--cores", "all"], cwd=default_run, capture_output=True, text=True)
    assert not jobs(done)


def test_no_output_names_this_machine(default_run):
    results = default_run / "results"
    outputs = [results / "summary.parquet", results / "report.html", *results.glob("models/*.json")]
    outputs += [*results.glob("activations/*/*/*/*.parquet"), *results.glob("figures/*.svg")]
    for path in outputs:
        content = path.read_bytes()
        assert str(ROOT).encode() not in content, path
        assert str(default_run).encode() not in content, path


def test_weights_and_activations_take_the_disk_that_the_config_lets_expect(default_run):
    results = default_run / "results"
    folder = results / "models/smollm2-135m"
    config = AutoConfig.from_pretrained(folder)
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert needs(config, torch.float32).weight_bytes == pytest.approx(weights, rel=0.01)
    for file in results.glob("activations/*/*/*/*.parquet"):
        stored = pq.read_metadata(file)
        dtype = getattr(torch, stored.metadata[b"dtype"].decode())
        expected = needs(config, dtype).example_bytes * stored.num_rows
        assert expected == pytest.approx(file.stat().st_size, rel=0.01)


@of_the_whole
def test_the_readmes_extract_command_keeps_the_examples_that_the_rule_keeps(default_run):
    (command,) = re.findall(r"^python (-m anchorscope .*)$", (ROOT / "README.md").read_text(), re.M)
    environment = {**os.environ, "PYTHONPATH": str(default_run / "workflow")}
    subprocess.run([sys.executable, *command.split()], cwd=default_run, env=environment, check=True)
    rule = default_run / "results/activations/smollm2-135m/nq-mini/0000/resid.answer_last.parquet"
    found, expected = (
        set(pl.read_parquet(file, columns=["id"])["id"])
        for file in (default_run / "nq/resid.answer_last.parquet", rule)
    )
    assert found == expected
