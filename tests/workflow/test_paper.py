"""config/paper.yaml from download to figures, each model a random miniature of its architecture and tokenizers."""

import contextlib
import re
import subprocess
import threading
import time
from pathlib import Path

import polars as pl
import pytest
import yaml

from anchorscope.files.identity import read_json
from hub_server import environment, serve
from miniatures import TOKENIZERS, dataset_repository, model_repository
from small_run import SNAKEMAKE, copy_project, jobs
from small_things import ROOT

PAPER = yaml.safe_load((ROOT / "config/paper.yaml").read_text())
TOKEN = "hf_the-secret-that-nobody-may-see"
QUESTIONS = 120
NO_HUB = "http://127.0.0.1:9"  # nobody listens there

pytestmark = pytest.mark.slow


def repositories(config: dict, tokenizer_folder) -> dict:
    found = {}
    for seed, (name, model) in enumerate(config["models"].items()):
        family = next(family for prefix, family in TOKENIZERS.items() if name.startswith(prefix))
        found[model["hub"]] = model_repository(name, model, tokenizer_folder(family), seed)
        if model["hub"].startswith("meta-llama/"):
            found[model["hub"]].token = TOKEN
    for dataset in config["datasets"].values():
        found[f"datasets/{dataset['repo']}"] = dataset_repository(dataset["layout"], dataset, QUESTIONS)
    return found


def run(folder: Path, endpoint: str, *arguments: str) -> str:
    """Output of a Snakemake run that succeeds, watched for the token among its processes' arguments."""
    command = [*SNAKEMAKE, *arguments, "--cores", "2", "--configfile", "paper.yaml"]
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(endpoint, folder / "home", HF_TOKEN=TOKEN),
    )
    shown: list[str] = []

    def watch() -> None:
        while process.poll() is None:
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):  # the process has ended meanwhile
                    shown.extend(re.findall(TOKEN, file.read_text(errors="replace")))
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, _ = process.communicate()
    watcher.join()
    assert process.returncode == 0, output[-4000:]
    assert not shown, "the token stands in the process list"
    return output


@pytest.fixture(scope="module")
def config() -> dict:
    """The published config with fewer questions, in float32: some processors take fifty times as long for bfloat16."""
    models = {name: model | {"dtype": "float32"} for name, model in PAPER["models"].items()}
    return PAPER | {"models": models, "questions": QUESTIONS, "shard_size": QUESTIONS, "bootstrap_draws": 100}


@pytest.fixture(scope="module")
def paper(config, tmp_path_factory, tokenizer_folder) -> Path:
    """The finished run: everything fetched ahead, and then run without a network."""
    folder = copy_project(tmp_path_factory.mktemp("paper"))
    (folder / "paper.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    said = []
    with serve() as hub:
        hub.repositories |= repositories(config, tokenizer_folder)
        said.append(run(folder, hub.url, "fetch"))
        assert not hub.asked("consolidated|original|pytorch_model")
    said.append(run(folder, NO_HUB))
    (folder / "said.log").write_text("\n".join(said))
    return folder


def test_every_model_and_dataset_reaches_the_tables_and_every_figure_is_drawn(paper, config):
    results = paper / "results"
    summary = pl.read_parquet(results / "summary.parquet")
    assert set(summary.select("model", "dataset").iter_rows()) == {
        (model, dataset) for model in config["models"] for dataset in config["datasets"]
    }
    for name, figure in config["figures"].items():
        for kind in ("png", "pdf", "svg"):
            assert (results / f"figures/{name}/family.{kind}").stat().st_size > 0
        drawn = re.findall(r">([^<>]+)</(?:text|tspan)>", (results / f"figures/{name}/family.svg").read_text())
        titles = [config["models"][model]["title"] for model in figure["models"]]
        assert [text for text in drawn if text in titles] == titles, "the smaller model left"


def test_each_manifest_names_the_pinned_revision_of_its_repository(paper, config):
    for name, model in config["models"].items():
        manifest = read_json(paper / f"results/models/{name}.json")
        assert (manifest["source"]["hub"], manifest["revision"]) == (model["hub"], model["revision"])
        files = {file.name for file in (paper / f"results/models/{name}").glob("[!.]*")}
        assert files == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}


def test_another_revision_of_one_model_reruns_its_chain_and_no_other(paper, config):
    name, model = next(iter(config["models"].items()))
    changed = config | {"models": config["models"] | {name: model | {"revision": "0" * 40}}}
    (paper / "changed.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    command = [*SNAKEMAKE, "--cores", "2", "--configfile", "changed.yaml", "--dry-run"]
    done = subprocess.run(command, cwd=paper, capture_output=True, text=True)
    chain = ("answer", "choose", "extract", "probe", "read_text", "estimate", "weigh_kinds")
    pairs = dict.fromkeys(chain, len(config["datasets"]))
    once = dict.fromkeys(("fetch_model", "read_licences", "summarise", "count_examples", "report", "provenance"), 1)
    assert jobs(done) == {**pairs, **once, "draw": len(config["figures"])}
    assert set(re.findall(r"model=([\w.-]+)", done.stdout + done.stderr)) == {name}


def test_no_claim_is_made_about_the_larger_of_two_models_of_one_size(paper):
    claims = read_json(paper / "results/claims.json")["claims"]
    assert {row["verdict"] for row in claims if row["claim"] == 4} == {"does not apply"}


def test_how_many_questions_each_dataset_kept_is_in_the_tables(paper, config):
    counts = pl.read_csv(paper / "results/examples.csv")
    assert counts.height == len(config["models"]) * len(config["datasets"])
    assert set(counts["questions"]) == {QUESTIONS}
    assert pl.read_csv(paper / "results/questions.csv").filter(verdict="kept")["rows"].to_list() == [QUESTIONS] * 4


def test_the_token_is_in_no_output_log_or_message(paper):
    for path in [*(paper / "results").rglob("*"), *(paper / ".snakemake").rglob("*"), paper / "said.log"]:
        if path.is_file() and not path.is_symlink():
            assert TOKEN.encode() not in path.read_bytes(), path
