"""A real language model on the bundled questions, from nothing to the figure.

In every run of the tests the tiny run, by the command `anchorscope` that a wheel installs, in an empty folder. With
--all also the default run, in a copy of the project, whose numbers are looked at.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from packaging.requirements import Requirement
from transformers import AutoConfig

from anchorscope.draw.kinds import kinds_drawn
from anchorscope.needs import needs
from installed import build, build_from_source, install_anew, install_beside, names_in
from small_run import SNAKEMAKE, copy_project, jobs
from small_things import ROOT

MIDDLE = range(15, 19)  # of SmolLM2's 30 layers
WHOLE = pytest.param("whole", marks=pytest.mark.slow)
ANEW = pytest.param("tiny, with nothing else installed", marks=pytest.mark.slow)
of_the_whole = pytest.mark.parametrize("command", [WHOLE], indirect=True)
of_the_tiny = pytest.mark.parametrize("command", ["tiny", ANEW], indirect=True)
DETECTOR = "results/detectors/smollm2-135m.safetensors"
IMPORTED_AS = {"vl-convert-python": "vl_convert", "pillow": "altair"}  # matplotlib, which all need, needs pillow
ANSWERS = {"Paris": "what is the capital of France", "Lisbon": "what is the capital of Peru"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("built")
    wheel = build_from_source(folder)
    assert names_in(wheel) == names_in(build("wheel", ROOT, folder / "direct"))
    assert wheel.stat().st_size < 3_000_000
    return wheel


def run(command: list[Path | str], folder: Path, **options) -> subprocess.CompletedProcess:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=alone, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done


@pytest.fixture(scope="module", params=["tiny", ANEW, WHOLE])
def command(request, tmp_path_factory) -> list[Path | str]:
    """What a run is made by."""
    if request.param == "whole":
        return [*SNAKEMAKE, "--cores", "all"]
    install = install_beside if request.param == "tiny" else install_anew
    return [install(request.getfixturevalue("wheel"), tmp_path_factory.mktemp("environment")) / "anchorscope", "run"]


@pytest.fixture(scope="module")
def default_run(command, tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("default")
    if command[-1] == "run":
        run([command[0], "init", ".", "--from", "tiny"], folder)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        del config["datasets"]["popqa-mini"]  # one of them shows as much in half the time
        (folder / "config.yaml").write_text(yaml.safe_dump(config | {"bootstrap_draws": 100}, sort_keys=False))
    else:
        copy_project(folder)
    run(command, folder)
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


def test_a_second_run_does_nothing(default_run, command):
    assert not jobs(run(command, default_run))


@of_the_tiny
def test_an_answer_is_scored_without_the_packages_of_the_workflow(default_run, command):
    run([*command, "--", DETECTOR], default_run)
    rows = [{"question": question, "answer": answer} for answer, question in ANSWERS.items()]
    (default_run / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["run"]
    absent = [IMPORTED_AS.get(name, name) for name in (Requirement(text).name for text in needed)]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); from anchorscope.__main__ import main; main()"
    python = [command[0].with_name("python"), "-c", code]
    model = ["--detector", DETECTOR, "--model", "results/models/smollm2-135m.json"]
    said = run([*python, "score", *model, "asked.jsonl"], default_run).stdout
    scored = [json.loads(line) for line in said.splitlines()]
    assert all(0 < row.pop("hallucinated") < 1 for row in scored)
    assert scored == rows
    done = subprocess.run([*python, "run"], cwd=default_run, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("pip install 'anchorscope[run]'\n")


@of_the_tiny
def test_the_report_is_made_again_by_the_command_that_is_told(default_run, command):
    (default_run / "results/report.html").unlink()
    done = run([command[0], "report"], default_run)
    told = done.stderr.splitlines()[0]
    assert told.startswith("snakemake results/report.html --cores all --snakefile ")
    assert (default_run / "results/report.html").exists()
    again = run([command[0].with_name("python"), "-m", *shlex.split(told), "--dry-run"], default_run)
    assert not jobs(again)


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
def test_the_pages_extract_command_keeps_the_examples_that_the_rule_keeps(default_run):
    (words,) = re.findall(r"^python (-m anchorscope .*)$", (ROOT / "docs/cluster.md").read_text(), re.M)
    environment = {**os.environ, "PYTHONPATH": str(default_run / "workflow")}
    subprocess.run([sys.executable, *words.split()], cwd=default_run, env=environment, check=True)
    rule = default_run / "results/activations/smollm2-135m/nq-mini/0000/resid.answer_last.parquet"
    found, expected = (
        set(pl.read_parquet(file, columns=["id"])["id"])
        for file in (default_run / "nq/resid.answer_last.parquet", rule)
    )
    assert found == expected
