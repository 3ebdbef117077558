"""Detection on top of a finished run: what it makes, what it makes again, and what it says where there is little."""

import re
import shutil
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from anchorscope.detect.methods import METHODS
from anchorscope.detect.reweighting import layer_read
from anchorscope.extract.axes import EXACT, HEADLINE
from anchorscope.extract.store import ActivationReader
from anchorscope.files.sealed_parquet import made_from, provenance, read_table, write_table
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.kept import read_probes
from rounding import assert_same, of_logits
from small_run import base_config, jobs, snakemake, write_config, write_hard_questions, write_questions

TABLES = ("detection", "transfer", "reliability", "coverage", "pathways")
BY_DEFAULT = [name for name, method in METHODS.items() if method.needs is None]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def detected(finished, tmp_path_factory) -> Path:
    """The finished run with detection. Not to be changed: copy it first."""
    folder = tmp_path_factory.mktemp("detected") / "run"
    shutil.copytree(finished, folder, symlinks=True)
    done = snakemake(folder, "detect")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def copied(detected, tmp_path) -> Path:
    shutil.copytree(detected, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def test_every_method_is_compared_on_the_examples_that_were_probed(detected):
    detection = pl.read_parquet(detected / "results/detection.parquet")
    for dataset in ("one", "two"):
        delta = pl.read_parquet(detected / f"results/delta/tiny/{dataset}.parquet", columns=["id", "hallucinated"])
        mine = detection.filter(model="tiny", dataset=dataset)
        assert mine["method"].to_list() == BY_DEFAULT
        assert set(mine["n"]) == {delta["id"].n_unique()}
        assert set(mine["hallucinated_share"].round(9)) == {round(delta.unique("id")["hallucinated"].mean(), 9)}
        scores = pl.read_parquet(detected / f"results/detect/scores/tiny/{dataset}.parquet")
        assert set(scores["id"]) == set(delta["id"])
        assert scores["p"].is_between(0, 1).all()
    for name in TABLES:
        table = pl.read_parquet(detected / f"results/{name}.parquet")
        assert pl.read_csv(detected / f"results/{name}.csv").height == table.height > 0
        assert not any(column.is_nan().any() for column in table.select(pl.selectors.float())), name


def test_the_plain_probe_is_that_of_the_main_run(detected):
    """It is read from disk, so only the sums of its logits can be rounded otherwise."""
    ((component, position),) = (place,) = HEADLINE.places()
    middle = {"component": component, "position": position, "layer": layer_read(2)}
    for dataset in ("one", "two"):
        delta = pl.read_parquet(detected / f"results/delta/tiny/{dataset}.parquet").filter(
            repeat=0, intervention="exact_question", **middle
        )
        scores = pl.read_parquet(detected / f"results/detect/scores/tiny/{dataset}.parquet").filter(method="probe")
        both = scores.join(delta, on="id", validate="1:1")
        assert len(both) == len(scores) == len(delta)
        folders = sorted((detected / f"results/activations/tiny/{dataset}").iterdir())
        states = ActivationReader(folders, HEADLINE, [EXACT]).read(*place, "first", "clean", range(2))
        (probes, *_) = read_probes(detected / f"results/probes/tiny/{dataset}/resid.answer_last.parquet")
        assert_same(both["score"], both["logit_clean_full"], of_logits(probes[FULL], states))


def test_on_the_diagonal_of_transfer_stands_what_the_table_of_methods_has(detected):
    detection, transfer = (pl.read_parquet(detected / f"results/{name}.parquet") for name in ("detection", "transfer"))
    assert set(transfer["trained_on"]) == {"one", "two"}, "with two datasets, all others are the other one"
    home = transfer.filter(pl.col("trained_on") == pl.col("dataset")).select("dataset", "method", "auc", "n")
    both = home.join(detection, on=["dataset", "method"])
    assert len(both) == len(home) > 0
    assert both["auc"].to_list() == pytest.approx(both["auc_right"].to_list())
    assert (both["n"] == both["n_right"]).all()


def test_datasets_that_share_their_questions_teach_each_other_nothing(detected):
    """The second dataset asks what the first one does."""
    rows = pl.read_parquet(detected / "results/transfer.parquet").filter(pl.col("trained_on") != pl.col("dataset"))
    assert set(rows.select("trained_on", "dataset").rows()) == {("one", "two"), ("two", "one")}
    assert rows["auc"].null_count() == len(rows)
    ids = [set(pl.read_parquet(detected / f"results/delta/tiny/{name}.parquet")["id"]) for name in ("one", "two")]
    assert set(rows["left_out"]) == {len(ids[0] & ids[1])}
    assert "too few to learn from" in (detected / "results/logs/carry_over/tiny.log").read_text()
    assert "too few other examples are left to learn from" in (detected / "results/report.html").read_text()


def test_a_dataset_of_its_own_questions_teaches_the_others(copied, tokenizer):
    config = base_config()
    write_questions(copied / "three.jsonl", tokenizer, count=100, start=500)
    config["datasets"]["three"] = config["datasets"]["one"] | {"title": "THREE", "path": "three.jsonl"}
    write_config(copied, config)
    done = snakemake(copied, "detect")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pl.read_parquet(copied / "results/transfer.parquet").filter(method="probe")
    known = set(rows.drop_nulls("auc").select("trained_on", "dataset").rows())
    assert known - {(name, name) for name in config["datasets"]} == {
        *(("three", name) for name in ("one", "two")),
        *((name, "three") for name in ("one", "two")),
        *(("others", name) for name in ("one", "two", "three")),
    }
    out = {(row["trained_on"], row["dataset"]): row["left_out"] for row in rows.to_dicts()}
    assert out["others", "three"] == out["one", "three"] == out["three", "one"] == 0
    assert out["others", "one"] == out["two", "one"] > 0


def test_report_and_figures_show_it_and_detectors_are_linked(detected):
    results = detected / "results"
    page = (results / "report.html").read_text()
    assert '<section id="detection">' in page
    for file in ("detection.parquet", "detectors/tiny.safetensors", "detectors/tiny.md", "figures/main/transfer.svg"):
        assert f'href="{file}"' in page, file
        assert (results / file).stat().st_size > 0
    assert "MoP, random gate" in (results / "figures/main/detection.svg").read_text()
    logs = {path.relative_to(results / "logs").with_suffix("") for path in (results / "logs").rglob("*.log")}
    timed = {path.relative_to(results / "benchmarks").with_suffix("") for path in results.glob("benchmarks/**/*.tsv")}
    assert logs == timed


def test_what_was_made_stays_and_a_second_time_nothing_is_done(detected):
    assert jobs(snakemake(detected, "detect", "--dry-run")) == Counter()
    assert jobs(snakemake(detected, "--dry-run")) == Counter()


def test_samples_run_only_themselves_scores_and_below(copied):
    write_config(copied, base_config() | {"samples": 2})
    below = {"score_methods": 2, "carry_over": 1, "compare_methods": 1, "draw_detection": 1, "report": 1}
    assert jobs(snakemake(copied, "detect", "--dry-run")) == {
        "sample_answers": 4,
        **below,
        "provenance": 1,
        "detect": 1,
    }


def test_scores_without_the_stop_token_run_only_scores_and_below(copied):
    write_config(copied, base_config() | {"answer_scores": True})
    below = {"score_methods": 2, "carry_over": 1, "compare_methods": 1, "draw_detection": 1, "report": 1}
    assert jobs(snakemake(copied, "detect", "--dry-run")) == {**below, "provenance": 1, "detect": 1}


def test_with_one_dataset_there_is_nothing_to_carry_over(copied):
    config = base_config()
    del config["datasets"]["two"]
    write_config(copied, config)
    done = snakemake(copied, "detect")
    assert done.returncode == 0, done.stdout + done.stderr
    transfer = pl.read_parquet(copied / "results/transfer.parquet")
    assert set(transfer.select("trained_on", "dataset").rows()) == {("one", "one")}
    assert "there is nothing to carry over" in (copied / "results/report.html").read_text()


def test_a_dataset_that_cannot_be_probed_is_left_out_and_named(copied):
    config = base_config()
    config["datasets"]["hard"] = write_hard_questions(copied)
    write_config(copied, config)
    done = snakemake(copied, "detect")
    assert done.returncode == 0, done.stdout + done.stderr
    results = copied / "results"
    for name in TABLES:
        assert set(pl.read_parquet(results / f"{name}.parquet")["dataset"]) == {"one", "two"}, name
    assert [row[:2] for row in made_from(results / "detection.parquet")["not_probed"]] == [["tiny", "hard"]]
    said = "Not probed, because the answers are too few or too one-sided: Tiny on Hard."
    texts = re.findall(r">([^<>]+)</(?:text|tspan)>", (results / "figures/main/detection.svg").read_text())
    assert said in {text.strip() for text in texts}


def test_a_model_that_could_be_probed_nowhere_is_named_and_the_others_are_compared(copied):
    """Its files are those of the other model, but say that nothing was probed."""
    results, config = copied / "results", base_config()
    config["models"]["wrong"] = config["models"]["tiny"] | {"title": "Wrong"}
    write_config(copied, config)
    shutil.copy2(results / "models/tiny.json", results / "models/wrong.json")
    for kind in ("models", "answers", "activations", "asked", "reweighted", "detect/scores"):
        shutil.copytree(results / kind / "tiny", results / kind / "wrong", symlinks=True)
    for kind in ("reweighted", "detect/scores"):
        for file in (results / kind / "wrong").rglob("*.parquet"):
            nothing = read_table(file).slice(0, 0).replace_schema_metadata(None)
            write_table(file, nothing, provenance(not_probed="0 right are too few."))
    before = pl.read_parquet(results / "transfer.parquet")
    done = snakemake(copied, "results/detection.parquet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert made_from(results / "detection.parquet")["not_probed"] == [
        ["wrong", dataset, "0 right are too few."] for dataset in ("one", "two")
    ]
    assert read_table(results / "detect/transfer/wrong.parquet").num_rows == 0
    assert pl.read_parquet(results / "transfer.parquet").equals(before), "what the other model has is as it was"
