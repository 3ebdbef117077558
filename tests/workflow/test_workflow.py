"""A real Snakemake on a small real model: what runs, what reruns, and what is said when it cannot."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from html import escape
from importlib.metadata import version
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
from matplotlib import image
from transformers import MambaConfig, MambaForCausalLM

from anchorscope.extract.axes import COMPONENTS, POSITIONS
from anchorscope.files.sealed_parquet import made_from
from anchorscope.models.loading import processor
from anchorscope.questions.normalize import NOT_ENGLISH
from faults import damage
from small_run import (
    COPIED,
    SNAKEMAKE,
    base_config,
    jobs,
    save_model,
    snakemake,
    start_again,
    write_config,
    write_hard_questions,
)
from small_things import ROOT, tiny_model

# What runs again whenever a model or dataset has new examples.
AGGREGATION = {"summarise": 1, "count_examples": 1, "draw": 1, "report": 1, "provenance": 1}
SHOWN_AGAIN = {"summarise": 1, "draw": 1, "report": 1}
BELOW_PROBE = {"estimate": 2, "weigh_kinds": 2, **SHOWN_AGAIN}


@pytest.fixture
def rerun(finished, tmp_path) -> Path:
    """A copy of the finished run, times kept, to edit at will."""
    shutil.copytree(finished, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def test_a_run_leaves_every_named_output_and_a_log_and_a_benchmark_for_each_job(finished):
    results = finished / "results"
    for name in (
        "summary.parquet",
        "summary.csv",
        "claims.json",
        "claims.md",
        "examples.csv",
        "report.html",
        "figures/main/family.png",
        "figures/main/honest_column.svg",
    ):
        assert (results / name).stat().st_size > 0
    logs = {path.relative_to(results / "logs").with_suffix("") for path in (results / "logs").rglob("*.log")}
    benchmarks = {
        path.relative_to(results / "benchmarks").with_suffix("") for path in (results / "benchmarks").rglob("*.tsv")
    }
    assert logs == benchmarks
    assert Path("extract/tiny/one/0001") in logs
    assert not list(results.rglob("*.part"))


def test_the_summary_holds_every_series(finished):
    summary = pl.read_parquet(finished / "results/summary.parquet")
    keys = ["model", "dataset", "component", "position", "intervention", "rule", "labels", "logits", "anchor", "layer"]
    # Three rules at every place; at the headline three kinds of logits, and labels at reference layers.
    assert summary.height == 2 * (8 * 2 * 3 + 2 * 3 * 3 + 3) * 4 * 2
    assert summary.select(keys).n_unique() == summary.height
    sizes = summary.pivot(on="anchor", index=[key for key in keys if key != "anchor"], values="n")
    assert ((sizes["question"] + sizes["answer"] - sizes["all"]).abs() <= 1).all()
    assert summary["auc_clean"].is_between(0, 1).all()
    for table in ("summary", "series", "kinds", "strata", "accounts", "forms", "label_errors"):
        frame = pl.read_parquet(finished / f"results/{table}.parquet")
        assert pl.read_csv(finished / f"results/{table}.csv", infer_schema_length=None).height == frame.height > 0
        numbers = frame.select(pl.selectors.float())
        assert not any(column.is_nan().any() or column.is_infinite().any() for column in numbers), table


@pytest.mark.slow
def test_a_run_on_random_weights_supports_no_claim_that_needs_a_signal(rerun):
    """Question- and Answer-Anchored cannot differ here. One position gives the label away all the same: the exact
    answer is the first two words where it is right, and most of them where it is wrong. What the knockout does to that
    over the layers is anybody's guess, so there only the difference itself is looked at."""

    def claims() -> list[dict]:
        made = json.loads((rerun / "results/claims.json").read_text())["claims"]
        return [row for row in made if row["claim"] != 4]  # which compares models, and there is one

    assert {row["claim"] for row in claims()} == {1, 2, 3, 5, 6}
    assert {(row["model"], row["dataset"]) for row in claims()} == {("tiny", name) for name in ("one", "two", None)}
    assert {row["verdict"] for row in claims() if row["claim"] == 1} <= {"undecided", "contradicted"}
    assert "| tiny | one | as measured | undecided |" in (rerun / "results/claims.md").read_text()
    # At the end of the answer's text nothing gives the label away, and the probe reads nothing.
    write_config(rerun, base_config() | {"headline": {"position": "final"}})
    done = snakemake(rerun, "results/claims.json")
    assert done.returncode == 0, done.stderr
    assert {row["verdict"] for row in claims()} == {"undecided"}
    assert "the probe is no better than chance" in {row["because"] for row in claims()}


def test_every_row_of_a_dataset_is_counted_once_under_what_became_of_it(finished):
    counts = pl.read_csv(finished / "results/questions.csv")
    assert counts.columns == ["dataset", "verdict", "rows"]
    assert dict(counts.group_by("dataset").agg(pl.col("rows").sum()).iter_rows()) == {"one": 130, "two": 110}
    assert set(counts["verdict"]) == {"kept"}


def test_counts_add_up(finished):
    for row in pl.read_csv(finished / "results/examples.csv").iter_rows(named=True):
        assert row["asked"] == row["right"] + row["wrong"] + row["refused"] == min(120, row["questions"])
        assert row["analysed"] == row["asked"] - row["refused"] - row["left_out_by_balance"] > 40
        files = sorted((finished / "results/activations/tiny" / row["dataset"]).glob("*/resid.answer_last.parquet"))
        assert row["analysed"] == sum(pq.read_metadata(file).num_rows for file in files)
    first = pq.read_table(finished / "results/activations/tiny/one/0000/resid.answer_last.parquet", columns=["right"])[
        "right"
    ]
    assert first.to_pylist().count(True) == first.to_pylist().count(False)


def test_every_output_says_what_made_it(finished):
    files = sorted((finished / "results").rglob("*.parquet"))
    assert {file.relative_to(finished / "results").parts[0] for file in files} >= {
        "raw",
        "questions",
        "layers",
        "estimates",
    }
    for file in files:
        about = json.loads(pq.read_metadata(file).metadata[b"anchorscope"])
        assert len(about["code"]) == 16
        assert {"polars", "pyarrow"} <= set(about["versions"])
        if {"answers", "chosen", "activations", "delta", "layers", "estimates"} & set(file.parts):
            assert about["model"]["revision"]
    source = {"source": "file", "sha256": hashlib.sha256((finished / "one.jsonl").read_bytes()).hexdigest()}
    assert made_from(finished / "results/raw/one.parquet")["origin"] == source


def extract_command(folder: Path, output: str) -> list[str]:
    chosen = "results/chosen/tiny/one/0000.parquet"
    options = ["--dtype", "float32", "--threads", "1"]  # as the rule does on two cores
    options += ["--components", *COMPONENTS, "--positions", *POSITIONS]
    return [sys.executable, "-m", "anchorscope", "extract", "results/models/tiny.json", chosen, output, *options]


@pytest.mark.slow
def test_the_extract_command_gives_what_the_rule_gives(finished, tmp_path):
    output = tmp_path / "alone"
    done = subprocess.run(extract_command(finished, str(output)), cwd=finished, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = sorted((finished / "results/activations/tiny/one/0000").iterdir())
    assert sorted(path.name for path in output.iterdir()) == [file.name for file in files]
    for file in files:
        assert pq.read_table(output / file.name).equals(pq.read_table(file))


@pytest.mark.slow
def test_a_killed_extraction_leaves_nothing_that_passes_for_whole(finished, tmp_path):
    output = tmp_path / "killed"
    process = subprocess.Popen([*extract_command(finished, str(output)), "--batch-tokens", "64"], cwd=finished)
    while process.poll() is None and not list(output.glob(".*.part")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert list(output.glob(".*.part")), "it was killed while it wrote"
    assert not list(output.glob("*.parquet"))


def test_a_second_run_does_no_job(rerun):
    assert jobs(snakemake(rerun)) == Counter()


@pytest.mark.parametrize(
    "keep_metadata",
    [pytest.param(True, marks=pytest.mark.slow), False],
    ids=["with .snakemake", "without .snakemake"],
)
def test_a_fresh_checkout_over_finished_results_does_no_job(rerun, keep_metadata):
    for name in [*COPIED, "one.jsonl", "two.jsonl", "test.yaml"]:
        for path in [rerun / name, *(rerun / name).rglob("*")]:
            os.utime(path)
    if not keep_metadata:
        shutil.rmtree(rerun / ".snakemake")
    assert jobs(snakemake(rerun, "--dry-run")) == Counter()


WATCH = """
import sys

def watch(event, arguments):
    if event == "pickle.find_class":
        with open({!r}, "a") as file:
            print(arguments[0], file=file)

sys.addaudithook(watch)
"""


@pytest.mark.slow
def test_two_runs_give_identical_bytes_and_unpickle_nothing(finished, tmp_path, monkeypatch):
    """But for what Snakemake itself hands to a job, inside the script that it writes for it."""
    (tmp_path / "watch").mkdir()
    (tmp_path / "watch/sitecustomize.py").write_text(WATCH.format(str(tmp_path / "unpickled")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "watch"))
    folder = start_again(finished, tmp_path / "run")
    done = snakemake(folder)
    assert done.returncode == 0, done.stderr
    assert set((tmp_path / "unpickled").read_text().split()) == {"snakemake.iocontainers"}
    for name in (
        "summary.parquet",
        "summary.csv",
        "series.parquet",
        "kinds.parquet",
        "strata.csv",
        "claims.json",
        "claims.md",
        "examples.csv",
        "report.html",
        "provenance.json",
        "figures/main/family.png",
        "figures/main/family.svg",
    ):
        assert (folder / "results" / name).read_bytes() == (finished / "results" / name).read_bytes(), name


def test_adding_a_model_runs_only_its_jobs_the_aggregation_and_the_figures(rerun, tokenizer):
    save_model(rerun / "other-model", tokenizer, seed=1)
    config = base_config()
    config["models"]["other"] = {"title": "Other", "path": "other-model", "dtype": "float32"}
    config["figures"]["main"]["models"].append("other")
    write_config(rerun, config)
    done = snakemake(rerun, "--dry-run")
    assert jobs(done) == dict(
        AGGREGATION,
        **{"fetch_model": 1, "read_licences": 1},
        **{"answer": 4, "choose": 4, "extract": 4, "probe": 2, "read_text": 2, "estimate": 2, "weigh_kinds": 2},
    )
    touched = set(re.findall(r"model=([\w-]+)", done.stdout + done.stderr))
    assert touched == {"other"}


@pytest.fixture(scope="module")
def random_run(finished, tmp_path_factory, tokenizer) -> Path:
    """The finished run with a second model: the config of the first one, whose weights are the draw of seed 0."""
    folder = tmp_path_factory.mktemp("random") / "run"
    shutil.copytree(finished, folder, symlinks=True)
    tiny_model("llama", len(tokenizer), layers=2).config.to_json_file(folder / "shape.json")
    write_config(folder, random_config("shape.json"))
    done = snakemake(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def random_config(shape: str) -> dict:
    config = base_config()
    del config["datasets"]["two"]
    config["models"]["shape"] = {"title": "Trained", "random": {"config": shape}, "dtype": "float32"}
    config["figures"]["main"]["models"].append("shape")
    return config


@pytest.mark.slow
def test_every_output_of_a_model_with_random_weights_says_so(random_run):
    results = random_run / "results"
    expected = {"tiny": "trained", "shape": "random"}
    for name, weights in expected.items():
        assert json.loads((results / f"models/{name}.json").read_text())["weights"] == weights
        for file in (
            "answers/{}/one/0000",
            "activations/{}/one/0001/resid.answer_last",
            "delta/{}/one",
            "layers/{}/one",
        ):
            about = made_from(results / f"{file.format(name)}.parquet")
            assert (about["model"]["name"], about["model"]["weights"]) == (name, weights)
    models = made_from(results / "summary.parquet")["models"]
    assert {name: manifest["weights"] for name, manifest in models.items()} == expected
    for table in (
        pl.read_parquet(results / "summary.parquet"),
        pl.read_csv(results / "summary.csv"),
        pl.read_csv(results / "examples.csv"),
    ):
        assert dict(table.select("model", "weights").unique().iter_rows()) == expected

    note = "Trained: random weights; their numbers mean nothing about trained models."
    marks = {"Tiny", "Trained (random weights)", note}
    assert marks <= svg_texts(results / "figures/main/family.svg")
    page = (results / "report.html").read_text()
    assert f'<p class="note">{note}</p>' in page
    assert page.count("<td>Trained (random weights)</td>") == page.count("<td>Tiny</td>") > 0  # in every table of both
    assert "<td>Trained</td>" not in page


def svg_texts(path: Path) -> set[str]:
    return {text.strip() for text in re.findall(r">([^<>]+)</(?:text|tspan)>", path.read_text(encoding="utf-8"))}


@pytest.mark.slow
def test_random_weights_take_no_disk_and_answer_as_the_same_weights_do_from_disk(random_run):
    assert not list((random_run / "results/models/shape").glob("*.safetensors"))
    drawn, saved = (
        pl.read_parquet(random_run / f"results/answers/{name}/one/0000.parquet") for name in ("shape", "tiny")
    )
    assert drawn.equals(saved)


@pytest.mark.slow
def test_moving_a_config_with_random_weights_reruns_nothing_and_editing_it_reruns_its_model(random_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(random_run, folder, symlinks=True)
    (folder / "elsewhere").mkdir()
    shape = (folder / "shape.json").rename(folder / "elsewhere/renamed.json")
    write_config(folder, random_config("elsewhere/renamed.json"))
    moved = jobs(snakemake(folder, "--dry-run"))
    shape.write_text(json.dumps(json.loads(shape.read_text()) | {"rms_norm_eps": 1e-5}))
    edited = snakemake(folder, "--dry-run")
    assert moved == {"report": 1, "provenance": 1}, "the settings in them name the file"
    assert jobs(edited) == dict(
        AGGREGATION,
        **{"fetch_model": 1, "read_licences": 1},
        **{"answer": 2, "choose": 2, "extract": 2, "probe": 1, "read_text": 1, "estimate": 1, "weigh_kinds": 1},
    )
    assert set(re.findall(r"model=([\w-]+)", edited.stdout + edited.stderr)) == {"shape"}


@pytest.mark.slow
def test_adding_a_dataset_runs_only_its_jobs_the_aggregation_and_the_figures(rerun):
    config = base_config()
    shutil.copy(rerun / "two.jsonl", rerun / "three.jsonl")
    config["datasets"]["three"] = {"title": "Three", "layout": "nq", "source": "file", "path": "three.jsonl"}
    write_config(rerun, config)
    done = snakemake(rerun, "--dry-run")
    prepared = {"fetch_questions": 1, "read_licences": 1, "normalize": 1, "answer": 2, "choose": 2, "extract": 2}
    judged = {"probe": 1, "read_text": 1, "estimate": 1, "weigh_kinds": 1}
    assert jobs(done) == {**AGGREGATION, **prepared, **judged}
    assert set(re.findall(r"dataset=([\w-]+)", done.stdout + done.stderr)) == {"three"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompt", "reruns"), [("first", {"answer": 4, "choose": 4, "count_examples": 1}), ("second", {})]
)
def test_a_new_prompt_reruns_what_was_run_under_it(rerun, prompt, reruns):
    path = rerun / "workflow/resources/prompts.json"
    texts = json.loads(path.read_text())
    texts["few_shot"][prompt].pop()
    path.write_text(json.dumps(texts))
    probed = {"extract": 4, "probe": 2, "read_text": 2}
    assert jobs(snakemake(rerun, "--dry-run")) == {**reruns, **probed, **BELOW_PROBE, "provenance": 1}


@pytest.mark.slow
def test_other_cores_rerun_nothing(rerun):
    done = subprocess.run(
        [*SNAKEMAKE, "--cores", "16", "--configfile", "test.yaml", "--dry-run"],
        cwd=rerun,
        capture_output=True,
        text=True,
    )
    assert jobs(done) == Counter()


@pytest.mark.slow
def test_more_jobs_start_than_there_are_gpus_and_probes_ask_for_one(rerun, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    command = [*SNAKEMAKE, "--cores", "16", "--configfile", "test.yaml", "--dry-run", "--forcerun", "answer", "probe"]
    done = subprocess.run(command, cwd=rerun, capture_output=True, text=True)
    shown = done.stdout + done.stderr
    threads = re.findall(r"^rule answer:.*?threads: (\d+)", shown, re.M | re.S)
    assert set(threads) == {"2"}, "eight jobs on sixteen cores"
    asked = re.findall(r"^rule probe:.*?resources: ([^\n]*)", shown, re.M | re.S)
    assert asked
    assert all("gpu=1" in line for line in asked)


def test_what_a_scheduler_is_asked_for_reruns_nothing(rerun):
    config = base_config()
    config["models"]["tiny"] |= {"gpus": 2, "memory_gb": 99}
    write_config(rerun, config)
    assert jobs(snakemake(rerun, "--dry-run")) == Counter()
    shown = snakemake(rerun, "--dry-run", "--forcerun", "extract")
    asked = re.findall(r"^rule extract:.*?resources: ([^\n]*)", shown.stdout + shown.stderr, re.M | re.S)
    assert asked
    assert all("gpu=2" in line and "mem_mb=99000" in line for line in asked)


@pytest.mark.slow
def test_jobs_use_the_library_of_their_own_checkout(rerun):
    template = rerun / "workflow/anchorscope/report/templates/page.html"
    template.write_text(template.read_text().replace("<h1>Anchorscope</h1>", "<h1>Edited</h1>"))
    done = snakemake(rerun)
    assert done.returncode == 0, done.stderr
    assert "<h1>Edited</h1>" in (rerun / "results/report.html").read_text()


@pytest.mark.slow
def test_more_questions_run_only_the_new_shards(rerun):
    config = base_config()
    config["questions"] = 180
    write_config(rerun, config)
    assert jobs(snakemake(rerun, "--dry-run")) == dict(
        AGGREGATION, answer=2, choose=2, extract=2, probe=2, read_text=2, estimate=2, weigh_kinds=2
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"bootstrap_draws": 300}, BELOW_PROBE, marks=pytest.mark.slow),
        # Its probes also learn from labels of which some are wrong.
        pytest.param(
            {"headline": {"component": "mlp"}}, {"probe": 2, "read_text": 2, **BELOW_PROBE}, marks=pytest.mark.slow
        ),
        pytest.param({"folds": 4}, {"probe": 2, "read_text": 2, **BELOW_PROBE}, marks=pytest.mark.slow),
        ({"components": ["mlp", "resid"]}, {"probe": 2, "read_text": 2, **BELOW_PROBE}),
        # Only the passes of what was added: a file for each of the four shards.
        ({"interventions": ["subject"], "windows": [4]}, {"extract": 8, "probe": 2, "read_text": 2, **BELOW_PROBE}),
        # Only what is each one's own, for each of the four shards or two datasets, and what shows it.
        (
            {"experiments": ["saliency", "awareness", "boundary", "answer_only", "patching"]},
            {
                **{"extract_experiment": 8, "score_experiment": 4, "ask_unsure": 4, "saliency": 2, "tell_groups": 2},
                **{"estimate_experiment": 10, "summarise_experiments": 5},
                **SHOWN_AGAIN,
            },
        ),
        pytest.param(
            {"experiments": ["patching"]},
            {
                **{"extract_experiment": 4, "score_experiment": 2, "estimate_experiment": 2},
                **{"summarise_experiments": 1},
                **SHOWN_AGAIN,
            },
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"experiments": ["awareness"]},
            {"tell_groups": 2, "estimate_experiment": 2, "summarise_experiments": 1, **SHOWN_AGAIN},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"windows": [4]}, {"extract": 4, "probe": 2, "read_text": 2, **BELOW_PROBE}, marks=pytest.mark.slow
        ),
        (
            {"balance": False},
            {"choose": 4, "extract": 4, "probe": 2, "read_text": 2, "count_examples": 1, **BELOW_PROBE},
        ),
    ],
)
def test_a_setting_reruns_exactly_what_it_can_change(rerun, changes, expected):
    write_config(rerun, base_config() | changes)
    assert jobs(snakemake(rerun, "--dry-run")) == {**expected, "provenance": 1}


SALMON = {"describe_salmon": 1, "extract": 4, "probe": 2, "estimate": 2, "weigh_kinds": 2, "summarise": 1, "salmon": 1}


def test_a_salmon_is_made_only_when_it_is_asked_for(rerun):
    done = snakemake(rerun, "salmon", "--dry-run")
    assert jobs(done) == SALMON
    assert set(re.findall(r"model=([\w+-]+)", done.stdout + done.stderr)) == {"tiny", "tiny+salmon"}
    assert jobs(snakemake(rerun, "--dry-run")) == Counter()


@pytest.mark.slow
def test_a_salmon_differs_from_its_model_in_nothing_but_the_weights(rerun):
    """The small run's model is itself the draw of seed 0. So its salmon has the same numbers."""
    config = base_config() | {"interventions": ["content"]}
    write_config(rerun, config)
    for arguments in (["salmon"], []):
        done = snakemake(rerun, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
    assert jobs(snakemake(rerun, "--dry-run")) == Counter(), "what was made stays"
    results = rerun / "results"
    trained, salmon = (pl.read_parquet(results / f"delta/{name}/one.parquet") for name in ("tiny", "tiny+salmon"))
    assert salmon.equals(trained)
    for table in ("summary", "layers"):
        frame = pl.read_parquet(results / f"{table}.parquet")
        assert dict(frame.select("model", "weights").unique().iter_rows()) == {
            "tiny": "trained",
            "tiny+salmon": "random",
        }
    claims = json.loads((results / "claims.json").read_text())
    assert {row["model"] for row in claims["claims"]} == {"tiny"}
    assert "salmon" not in (results / "claims.md").read_text()
    manifest = json.loads((results / "models/tiny+salmon.json").read_text())
    assert (manifest["weights"], manifest["source"]["random"]["seed"]) == ("random", 0)
    assert not (results / "models/tiny+salmon").exists(), "weights are drawn, not kept"


# On top of a finished run of one model on two datasets of two shards each.
DETECT = {
    **{"fit_gates": 2, "run_again": 4, "score_methods": 2, "carry_over": 1, "train_detector": 1},
    **{"compare_methods": 1, "draw_detection": 1, "report": 1, "detect": 1},
}


@pytest.mark.slow
def test_detection_is_made_only_when_it_is_asked_for_and_computes_nothing_of_the_run_again(rerun):
    assert jobs(snakemake(rerun, "detect", "--dry-run")) == DETECT
    assert jobs(snakemake(rerun, "--dry-run")) == Counter()


EXTRACT_AND_BELOW = {"extract": 4, "probe": 2, "read_text": 2, **BELOW_PROBE}


def test_a_component_that_was_not_kept_is_extracted_with_all_that_follows(rerun):
    for file in rerun.glob("results/activations/*/*/*/mlp.*.parquet"):
        file.unlink()
    write_config(rerun, base_config() | {"components": ["resid", "mlp"]})
    assert jobs(snakemake(rerun, "--dry-run")) == {**EXTRACT_AND_BELOW, "provenance": 1}


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("anchorscope/probe/scores.py", '"""', '"""What a comment says changes nothing. ', {}),
        pytest.param(
            "anchorscope/probe/strengths.py",
            "64.0, 16.0",
            "32.0, 16.0",
            {"probe": 2, "read_text": 2, **BELOW_PROBE},
            marks=pytest.mark.slow,
        ),
        ("anchorscope/extract/interventions.py", "CONTROL_REACH = 16", "CONTROL_REACH = 15", EXTRACT_AND_BELOW),
        pytest.param(
            "anchorscope/text/short_answer.py",
            "(?:will|would",
            "(?:shall|will|would",
            {"answer": 4, "choose": 4, "count_examples": 1, **EXTRACT_AND_BELOW},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "anchorscope/draw/style.py",
            'GREY = "0.4"',
            'GREY = "0.5"',
            {"draw": 1, "report": 1},
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "anchorscope/summarise/claims.py",
            "SIMILAR = 25.0",
            "SIMILAR = 24.0",
            {"summarise": 1, "draw": 1, "report": 1},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a comment", "probes", "knockout", "exact answers", "figure", "claims"],
)
def test_an_edit_of_the_library_reruns_exactly_the_stages_that_use_it(rerun, file, old, new, expected):
    path = rerun / "workflow" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert jobs(snakemake(rerun, "--dry-run")) == {**expected, **({"provenance": 1} if expected else {})}


@pytest.mark.slow
@pytest.mark.parametrize("file", ["page.html", "page.css"])
def test_an_edit_of_a_template_only_makes_the_report_again(rerun, file):
    path = rerun / "workflow/anchorscope/report/templates" / file
    path.write_text(path.read_text() + "\n")
    assert jobs(snakemake(rerun, "--dry-run")) == {"report": 1}


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True], ids=["the bundled file", "a file that the config names"])
def test_another_style_only_draws_again(finished, rerun, own):
    bundled = rerun / "workflow/resources/figures.mplstyle"
    text = bundled.read_text().replace("savefig.dpi: 300", "savefig.dpi: 150")
    if own:
        (rerun / "own.mplstyle").write_text(text)
        write_config(rerun, base_config() | {"style": "own.mplstyle"})
    else:
        bundled.write_text(text)
    assert jobs(snakemake(rerun, "--dry-run")) == {"draw": 1, "report": 1, **({"provenance": 1} if own else {})}
    if not own:
        return
    done = snakemake(rerun, "results/figures/main/share.png")
    assert done.returncode == 0, done.stderr
    before, after = (image.imread(run / "results/figures/main/share.png").shape for run in (finished, rerun))
    assert before[0] == 2 * after[0]


@pytest.mark.slow
def test_removing_a_model_drops_it_from_tables_and_figures_and_keeps_its_files(random_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(random_run, folder, symlinks=True)
    config = random_config("shape.json")
    del config["models"]["shape"]
    config["figures"]["main"]["models"].remove("shape")
    write_config(folder, config)
    assert jobs(snakemake(folder, "--dry-run")) == AGGREGATION | {"read_licences": 1}
    done = snakemake(folder)
    assert done.returncode == 0, done.stderr
    assert set(pl.read_parquet(folder / "results/summary.parquet")["model"]) == {"tiny"}
    assert "Trained" not in (folder / "results/figures/main/family.svg").read_text()
    for kept in ("models/shape.json", "answers/shape/one/0000.parquet", "delta/shape/one.parquet"):
        assert (folder / "results" / kept).exists(), kept


def test_a_run_says_what_made_it(finished):
    made = json.loads((finished / "results/provenance.json").read_text())
    assert made["config"]["questions"] == 120
    assert set(made["code"]) == {path.stem for path in (finished / "scripts").glob("*.py")}
    assert made["models"]["tiny"]["revision"]
    assert made["datasets"]["one"]["sha256"] == hashlib.sha256((finished / "one.jsonl").read_bytes()).hexdigest()
    assert made["licences"] == {
        "models": {"tiny": "not stated"},
        "datasets": {"one": "not stated", "two": "not stated"},
    }
    assert made["libraries"]["torch"] == version("torch")
    why = "the config asks for it"
    with_one_thread = {"dtype": "float32", "dtype_because": why, "device": processor(), "threads": 1}
    assert made["computed"] == {"tiny": [with_one_thread]}
    for file in ("answers/tiny/one/0001.parquet", "activations/tiny/two/0000/mlp.final.parquet"):
        assert made_from(finished / "results" / file)["computed"] == with_one_thread
    report = (finished / "results/report.html").read_text()
    computed = {"computed in": "float32", "because": why, "computed on": processor(), "CPU threads": 1}
    for what, value in computed.items():
        assert f'<th scope="row">{what}</th><td>{escape(str(value))}</td>' in report


@pytest.mark.slow
def test_a_new_title_only_draws_again(rerun):
    config = base_config()
    config["models"]["tiny"]["title"] = "Another name"
    config["datasets"]["one"]["title"] = "Another name, too"
    write_config(rerun, config)
    assert jobs(snakemake(rerun, "--dry-run")) == {"draw": 1, "report": 1, "provenance": 1}


@pytest.mark.slow
def test_reordered_config_keys_rerun_nothing(rerun):
    config = base_config()
    config["models"]["tiny"] = dict(reversed(config["models"]["tiny"].items()))
    write_config(rerun, dict(reversed(config.items())))
    assert jobs(snakemake(rerun, "--dry-run")) == Counter()


def test_a_mistake_in_the_config_stops_before_any_job_with_its_sentence(rerun):
    write_config(rerun, base_config() | {"questons": 3})
    done = snakemake(rerun)
    assert done.returncode != 0
    assert "Unknown key 'questons' in the config; did you mean 'questions'?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
def test_a_dataset_that_cannot_be_read_says_why_and_the_others_finish(rerun):
    config = base_config()
    (rerun / "odd.jsonl").write_text('{"text": "who is it", "label": 1}\n')
    config["datasets"]["odd"] = {"title": "Odd", "layout": "nq", "source": "file", "path": "odd.jsonl"}
    (rerun / "results/delta/tiny/one.parquet").unlink()
    write_config(rerun, config)
    done = snakemake(rerun)
    assert done.returncode != 0
    odd = (rerun / "results/logs/normalize/odd.log").read_text().splitlines()[-1]
    assert "missing question, answer; it has text, label" in odd
    assert (rerun / "results/delta/tiny/one.parquet").exists(), "the other datasets still finish"


@pytest.mark.slow
def test_a_dataset_with_too_few_right_answers_is_named_and_the_others_reach_the_figures(rerun):
    config = base_config()
    config["datasets"]["hard"] = write_hard_questions(rerun)
    write_config(rerun, config)
    done = snakemake(rerun)
    assert done.returncode == 0, done.stderr
    log = (rerun / "results/logs/probe/tiny/hard.log").read_text()
    assert re.search(r"tiny on hard: \d+ right and \d+ hallucinated answers are too few to probe; 20 of each", log)
    (row,) = pl.read_csv(rerun / "results/examples.csv").filter(dataset="hard").to_dicts()
    said = f"`balance: false` switches off, {row['right']} were right and {row['wrong']} hallucinated."
    assert log.strip().endswith(said)
    assert row["wrong"] > row["analysed"] - row["right"]
    assert "Tiny, Hard (not probed)" in (rerun / "results/report.html").read_text()
    summary = rerun / "results/summary.parquet"
    assert set(pl.read_parquet(summary)["dataset"]) == {"one", "two"}
    assert [row[:2] for row in made_from(summary)["not_probed"]] == [["tiny", "hard"]]
    said = "Not probed, because the answers are too few or too one-sided: Tiny on Hard."
    assert said in svg_texts(rerun / "results/figures/main/family.svg")
    assert said in (rerun / "results/report.html").read_text()
    assert "tiny on hard" in (rerun / "results/claims.md").read_text()
    counts = pl.read_csv(rerun / "results/examples.csv").filter(dataset="hard")
    assert counts["analysed"].item() < 40


@pytest.mark.slow
def test_a_dataset_that_is_not_english_gets_one_warning_in_its_log_and_on_the_page(rerun):
    config = base_config()
    asked = [f"Wer schrieb das Buch Nummer {number}?" for number in range(8)]
    lines = [json.dumps({"question": question, "answers": ["Goethe"]}) for question in asked]
    (rerun / "german.jsonl").write_text("\n".join(lines))
    config["datasets"]["german"] = {"title": "German", "layout": "own", "source": "file", "path": "german.jsonl"}
    write_config(rerun, config)
    done = snakemake(rerun)
    assert done.returncode == 0, done.stderr
    said = {
        name: (rerun / f"results/logs/normalize/{name}.log").read_text().count(NOT_ENGLISH)
        for name in ("german", "one")
    }
    assert said == {"german": 1, "one": 0}
    assert (rerun / "results/report.html").read_text().count("Most questions are not in English.") == 1


@pytest.mark.slow
def test_a_run_in_which_nothing_can_be_probed_says_so(rerun):
    config = base_config()
    config["datasets"] = {"hard": write_hard_questions(rerun)}
    write_config(rerun, config)
    done = snakemake(rerun)
    assert done.returncode != 0
    last = (rerun / "results/logs/summarise.log").read_text().splitlines()[-1]
    assert "Nothing could be probed. tiny on hard: " in last


@pytest.mark.slow
def test_a_model_without_attention_is_refused_before_any_question_is_asked(rerun, tokenizer):
    model = MambaForCausalLM(MambaConfig(vocab_size=len(tokenizer), hidden_size=8, state_size=4, num_hidden_layers=1))
    model.save_pretrained(rerun / "mamba-model")
    tokenizer.save_pretrained(rerun / "mamba-model")
    config = base_config()
    config["models"]["other"] = {"title": "Other", "path": "mamba-model"}
    write_config(rerun, config)
    done = snakemake(rerun, "results/answers/other/one/0000.parquet")
    assert done.returncode != 0
    last = (rerun / "results/logs/fetch_model/other.log").read_text().splitlines()[-1]
    assert "other is a mamba model, which has no attention that could be cut" in last


@pytest.mark.slow
def test_non_finite_activations_stop_the_job_and_are_named(rerun, tokenizer):
    config = base_config()
    model = tiny_model("llama", len(tokenizer), layers=2, seed=0)
    model.get_decoder().layers[1].mlp.down_proj.weight.fill_(1e38)  # itself finite
    model.get_decoder().layers[1].mlp.up_proj.weight.fill_(1e6)
    model.save_pretrained(rerun / "broken-model")
    tokenizer.save_pretrained(rerun / "broken-model")
    config["models"]["broken"] = {"title": "Broken", "path": "broken-model", "dtype": "float32"}
    write_config(rerun, config)
    shutil.copytree(rerun / "results/chosen/tiny", rerun / "results/chosen/broken")
    target = "results/activations/broken/one/0000/resid.answer_last.parquet"
    done = snakemake(rerun, target, "--allowed-rules", "fetch_model", "extract")
    assert done.returncode != 0
    last = (rerun / "results/logs/extract/broken/one/0000.log").read_text().splitlines()[-1]
    assert "broken computes numbers that are not finite in float32" in last
    assert not (rerun / target).exists()


def is_damaged(file: str) -> str:
    """What is said of a damaged file: a pattern."""
    again = rf"make it again, with the options of your run: snakemake --cores all --forcerun results/{file}\.parquet"
    return rf"results/{file}\.parquet is damaged \(it.+\); {again}$"


# For each rule a file that it reads, one that it makes, its log, and a damage. No rule makes what another one of its
# group reads, so that all of a group run.
READERS = [
    {
        "normalize": ("raw/one", "questions/one.parquet", "normalize/one", "truncated"),
        "extract": (
            "chosen/tiny/one/0000",
            "activations/tiny/one/0000/resid.answer_last.parquet",
            "extract/tiny/one/0000",
            "empty",
        ),
        "estimate": ("layers/tiny/one", "estimates/tiny/one/kinds.parquet", "estimate/tiny/one", "bit-flipped"),
        "weigh_kinds": (
            "delta/tiny/two",
            "estimates/tiny/two/accounts.parquet",
            "weigh_kinds/tiny/two",
            "truncated",
        ),
        "draw": ("summary", "figures/main/family.png", "draw/main", "truncated"),
    },
    {
        "answer": ("questions/one", "answers/tiny/one/0000.parquet", "answer/tiny/one/0000", "bit-flipped"),
        "probe": (
            "activations/tiny/one/0001/resid.answer_last",
            "delta/tiny/one.parquet",
            "probe/tiny/one",
            "bit-flipped",
        ),
    },
    {"summarise": ("estimates/tiny/two/strata", "strata.parquet", "summarise", "empty")},
]


@pytest.mark.parametrize(
    "readers",
    [*(pytest.param(readers, marks=pytest.mark.slow) for readers in READERS[:-1]), READERS[-1]],
    ids=map(" ".join, READERS),
)
def test_a_stage_refuses_a_damaged_file_and_names_it_at_the_end_of_its_log(rerun, readers):
    for file, _, _, kind in readers.values():
        damage(rerun / f"results/{file}.parquet", kind)
    targets = [f"results/{made}" for _, made, _, _ in readers.values()]
    done = snakemake(rerun, *targets, "--keep-going", "--forcerun", *readers, "--allowed-rules", *readers)
    assert done.returncode != 0
    for file, made, log, _ in readers.values():
        assert re.search(is_damaged(file), (rerun / f"results/logs/{log}.log").read_text().splitlines()[-1])
        assert not (rerun / f"results/{made}").exists()


@pytest.mark.slow
def test_damage_is_found_and_one_command_makes_everything_again_byte_for_byte(rerun, finished):
    (page,) = re.findall(r"^anchorscope (damage .*)$", (ROOT / "docs/formats.md").read_text(), re.M)

    def look() -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "anchorscope", *page.split()], cwd=rerun, capture_output=True, text=True
        )

    files = {"results/answers/tiny/one/0000.parquet": "bit-flipped", "results/series.parquet": "empty"}
    for file, kind in files.items():
        damage(rerun / file, kind)
    said = look()
    assert said.returncode == 1
    *sentences, _, command = said.stdout.splitlines()
    assert [sentence.split(" is damaged ")[0] for sentence in sentences] == list(files)
    assert command == f"snakemake --cores all --forcerun {' '.join(files)}"
    done = snakemake(rerun, *command.removeprefix("snakemake --cores all ").split())
    assert done.returncode == 0, done.stderr
    said = look()
    assert (said.returncode, said.stdout) == (0, f"All {len(parquets(finished))} Parquet files in results are whole.\n")
    for name in [*parquets(finished), "report.html", "claims.json", "summary.csv", "figures/main/family.svg"]:
        assert (rerun / "results" / name).read_bytes() == (finished / "results" / name).read_bytes(), name


def parquets(run: Path) -> list[str]:
    return sorted(str(path.relative_to(run / "results")) for path in (run / "results").rglob("*.parquet"))


@pytest.mark.slow
def test_snakemakes_own_report_has_captions_categories_and_labels(rerun):
    done = subprocess.run(
        [*SNAKEMAKE, "--configfile", "test.yaml", "--report", "own.html"], cwd=rerun, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    page = (rerun / "own.html").read_text()
    (categories,) = re.findall(r"^ *var categories = (\{.*\});?$", page, re.M)
    (results,) = re.findall(r"^ *var results = (\{.*\});?$", page, re.M)
    assert set(json.loads(categories)) == {"Figures", "Claims", "Counts", "Report"}
    for path, shown in json.loads(results).items():
        assert shown["caption"], path
    kinds = [entry["labels"]["kind"] for entry in json.loads(results).values() if "kind" in (entry["labels"] or {})]
    assert sorted(kinds) == ["auc", "distribution", "family", "grid", "honest", "lines", "push", "share"]
