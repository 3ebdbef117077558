"""A real language model on the bundled questions, from nothing to the figure, by commands that people give.

In every run of the tests the command `anchorscope` that a wheel installs begins the tiny run in an empty folder, and
ends the small run of other tests. With --all it also runs the tiny run from nothing to the figure, where nothing else
is installed; and the default run, in a copy of the project, has its numbers looked at.
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

from anchorscope.draw.registry import kinds_drawn
from anchorscope.needs import needs
from installed import build, build_from_source, install_anew, install_beside, names_in
from small_run import SNAKEMAKE, copy_project, jobs
from small_things import ROOT

MIDDLE = range(15, 19)  # of SmolLM2's 30 layers
BEGUN = "tiny, as far as its activations"
ANEW = pytest.param("tiny, with nothing else installed", marks=pytest.mark.slow)
WHOLE = pytest.param("whole", marks=pytest.mark.slow)
of_the_whole = pytest.mark.parametrize("command", [WHOLE], indirect=True)
to_the_end = pytest.mark.parametrize("command", [ANEW, WHOLE], indirect=True)
STATES = "results/activations/smollm2-135m/nq-mini/0000/resid.answer_last.parquet"
FEW = {"questions": 16, "shard_size": 16}
DETECTOR = "results/detectors/tiny.safetensors"
READ = (
    "scripts",
    "envs",
    "config",
    *(f"workflow/{name}" for name in ("profiles", "report", "resources", "rules", "schemas")),
)
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


@pytest.fixture(scope="module")
def beside(wheel, tmp_path_factory) -> Path:
    """The command of a wheel that is installed where the libraries of this environment are found."""
    return install_beside(wheel, tmp_path_factory.mktemp("environment")) / "anchorscope"


@pytest.fixture(scope="module", params=[BEGUN, ANEW, WHOLE])
def command(request, tmp_path_factory) -> list[Path | str]:
    """What a run is made by."""
    if request.param == "whole":
        return [*SNAKEMAKE, "--cores", "all"]
    if request.param == BEGUN:
        return [request.getfixturevalue("beside"), "run", "--", STATES]
    return [install_anew(request.getfixturevalue("wheel"), tmp_path_factory.mktemp("anew")) / "anchorscope", "run"]


@pytest.fixture(scope="module")
def default_run(command, tmp_path_factory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("default")
    if command[1] == "run":
        run([command[0], "init", ".", "--from", "tiny"], folder)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        del config["datasets"]["popqa-mini"]  # one of them shows as much in half the time
        config |= {"bootstrap_draws": 100, **(FEW if STATES in command else {})}
        (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    else:
        copy_project(folder)
    run(command, folder)
    yield folder
    shutil.rmtree(folder)  # its activations take a gigabyte


@pytest.fixture(scope="module")
def small(finished, tmp_path_factory) -> Path:
    """The finished small run in a folder that has nothing of the project."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("results", "tiny-model"):
        shutil.copytree(finished / name, folder / name, symlinks=True)
    for name in ("one.jsonl", "two.jsonl"):
        shutil.copy2(finished / name, folder)
    shutil.copy2(finished / "test.yaml", folder / "config.yaml")
    return folder


def datasets(folder) -> dict[str, dict]:
    return yaml.safe_load((folder / "config.yaml").read_text())["datasets"]


def series(folder, **wanted: str) -> pl.DataFrame:
    summary = pl.read_parquet(folder / "results/summary.parquet")
    return summary.filter(component="resid", position="answer_last", **wanted).filter(pl.col("layer").is_in(MIDDLE))


def test_the_model_is_right_on_a_part_of_each_set(default_run):
    for name in datasets(default_run):
        files = sorted((default_run / "results/answers/smollm2-135m" / name).glob("*.parquet"))
        assert 0.15 < pl.concat(map(pl.read_parquet, files))["right"].mean() < 0.85


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


@to_the_end
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


@to_the_end
def test_the_report_holds_the_figures_and_asks_for_nothing_from_outside(default_run):
    results = default_run / "results"
    text = re.sub("<script.*?</script>", "", (results / "report.html").read_text(), flags=re.S)
    assert text.count("<picture>") == len(kinds_drawn(1, words=1, windows=1))
    assert "not the published datasets" in text
    for address in re.findall(r"(?:src|href)=\"([^\"]+)", text):
        assert address.startswith(("data:", "#")) or (results / address).is_file(), address


def test_a_second_run_does_nothing(default_run, command):
    assert not jobs(run(command, default_run))


def test_a_wheel_has_every_file_that_a_checkout_has(wheel):
    def files(folder: Path) -> set[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return {str(path.relative_to(ROOT)) for path in found}

    of_the_workflow = {f"anchorscope_workflow/{name}" for folder in READ for name in files(ROOT / folder)}
    of_the_library = {name.removeprefix("workflow/") for name in files(ROOT / "workflow/anchorscope")}
    assert of_the_workflow | of_the_library <= names_in(wheel)


def test_a_wheel_ends_what_a_checkout_began_as_the_checkout_does(small, finished, beside):
    """And makes nothing again that is there, by the command that it tells."""
    results = {path: path.stat().st_mtime_ns for path in (small / "results").rglob("*.*")}
    page = small / "results/report.html"
    page.unlink()
    done = run([beside, "report"], small)
    told = done.stderr.splitlines()[0]
    assert told.startswith("snakemake results/report.html --cores all --snakefile ")
    assert page.read_bytes() == (finished / "results/report.html").read_bytes()
    changed = [path.name for path, time in results.items() if path.stat().st_mtime_ns != time]
    assert sorted(changed) == ["report.html", "report.log", "report.tsv"]
    assert not jobs(run([beside.with_name("python"), "-m", *shlex.split(told), "--dry-run"], small))


def test_an_installed_anchorscope_advises_commands_that_it_has(small, beside, tmp_path):
    code = "import anchorscope; anchorscope.open('.')"
    done = subprocess.run([beside.with_name("python"), "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert "`anchorscope run` makes a run" in done.stderr
    code = "from anchorscope.files.bundled import run_command; print(run_command('--forcerun', 'results/text.parquet'))"
    advised = shlex.split(run([beside.with_name("python"), "-c", code], tmp_path).stdout)
    assert "summarise" in jobs(run([beside, *advised[1:], "--dry-run"], small))


def test_an_answer_is_scored_without_the_packages_of_the_workflow(small, beside):
    run([beside, "run", "--", DETECTOR], small)
    rows = [{"question": question, "answer": answer} for answer, question in ANSWERS.items()]
    (small / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["run"]
    absent = [IMPORTED_AS.get(name, name) for name in (Requirement(text).name for text in needed)]
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); from anchorscope.__main__ import main; main()"
    python = [beside.with_name("python"), "-c", code]
    model = ["--detector", DETECTOR, "--model", "results/models/tiny.json"]
    said = run([*python, "score", *model, "asked.jsonl"], small).stdout
    scored = [json.loads(line) for line in said.splitlines()]
    assert all(0 < row.pop("hallucinated") < 1 for row in scored)
    assert scored == rows
    done = subprocess.run([*python, "run"], cwd=small, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.endswith("pip install 'anchorscope[run]'\n")


def test_no_output_names_this_machine(default_run):
    results = default_run / "results"
    outputs = [*results.glob("models/*.json"), *results.rglob("*.parquet"), *results.rglob("*.svg")]
    outputs += results.glob("*.html")
    assert results / STATES.removeprefix("results/") in outputs
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
