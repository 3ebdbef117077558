"""Every command and every piece of Python on the pages is run: as it stands, as a dry run, or with small sizes."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from anchorscope.detect.train_detector import train_detector
from anchorscope.extract.axes import COMPONENTS, PASSES, POSITIONS
from anchorscope.extract.store import ActivationWriter
from anchorscope.files.frames import read_frame, write_frame
from pages import PAGES, blocks, commands
from planted_detector import FITTING, SOURCES
from small_run import SNAKEMAKE, copy_project
from small_things import ROOT

COMMANDS = list(dict.fromkeys(command for page in PAGES for command in commands(page)))
SNIPPETS = [(page, text) for page in PAGES for text in blocks(page, "python")]
ANCHORSCOPE = [sys.executable, "-m", "anchorscope"]
NAMES_MEANT = {"smollm2-135m": "tiny", "nq-mini": "one", "layer=15": "layer=1"}  # of the finished run
PLANS_NOTHING = ("--unlock", "--list-target-rules")  # such a command runs as it stands
# In place of the sizes that the pages measured with; the last of two equal options counts.
SMALL = {
    "bench_agreement": "",  # runs in the folder of a small run
    "bench_extract": "--model MODEL --examples 4 --plain 2 --single 1 --stored 0.001 --prefix 8 --dtype float32",
    "bench_generate": "--model MODEL --count 4 --repeats 1 --dtype float32",
    "bench_grading": "",  # runs in the folder of a small run
    "bench_growth": "--examples 200 --repeats 1 --layers 2 --width 64 --tokenizer MODEL",
    "bench_needs": "--help",  # measures on a GPU only
    "bench_probe": "--help",  # its shapes take half a minute with the fewest examples
    "bench_second_prompt": "",  # so does this
    "bench_score": "--model MODEL --answers 8 --repeats 1 --dtype float32",
    "bench_run": "--targets results/questions/nq-mini.parquet",
    "bench_store": "--examples 4 --layers 2 --width 64 --repeats 1",
    "bench_trial": "--run RUN --model tiny --shards 1",
}


class Place:
    """Where commands are run: a fresh copy of the project, and a finished run under the names that the pages use."""

    def __init__(self, finished: Path, folder: Path):
        self.finished = finished
        self.project = folder / "project"
        self.project.mkdir()
        copy_project(self.project)
        shutil.copytree(ROOT / "config", self.project / "config")
        self.run = folder / "run"
        results = self.run / "results"
        there = {
            "models/tiny": "models/tiny",
            "models/smollm2-135m": "models/tiny",
            "models/smollm2-135m.json": "models/tiny.json",
            "chosen/smollm2-135m/nq-mini": "chosen/tiny/one",
        }
        for shown, meant in there.items():
            (results / shown).parent.mkdir(parents=True, exist_ok=True)
            (results / shown).symlink_to(finished / "results" / meant)
        (results / "questions").mkdir()
        few = read_frame(finished / "results/questions/one.parquet").head(80)
        write_frame(results / "questions/nq-mini.parquet", few, {})
        summary = finished / "results/summary.parquet"
        renamed = pl.lit("smollm2-135m").alias("model"), pl.col("dataset").replace({"one": "nq-mini"})
        write_frame(results / "summary.parquet", read_frame(summary).with_columns(*renamed), {})
        files = {
            name: sorted((finished / "results/activations/tiny" / name).glob("*/resid.answer_last.parquet"))
            for name in ("one", "two")
        }
        detector, card = (results / f"detectors/smollm2-135m.{end}" for end in ("safetensors", "md"))
        manifest = finished / "results/models/tiny.json"
        train_detector(files, manifest, detector, card, sources=SOURCES, fitting=FITTING)
        kept = results / "probes/smollm2-135m/nq-mini"
        shutil.copytree(finished / "results/probes/tiny/one", kept)
        asked = {"question": "who wrote Emma", "answer": "Jane Austen"}
        for name in ("questions", "answers"):
            (self.run / f"{name}.jsonl").write_text(json.dumps(asked) + "\n")
        (self.run / "docs").symlink_to(ROOT / "docs")  # the gallery's tables
        self.vectors = torch.randn(len(COMPONENTS), 30, len(PASSES), len(POSITIONS), 3, 8)
        keys = [{"id": str(number), "right": True, "subject": None, "popularity": None} for number in range(3)]
        folder = results / "activations/smollm2-135m/nq-mini/0000"
        with ActivationWriter(folder, 30, 8, torch.float32, {}) as writer:
            writer.add(keys, self.vectors)


@pytest.fixture(scope="module")
def place(finished, tmp_path_factory) -> Place:
    return Place(finished, tmp_path_factory.mktemp("pages"))


def run(words: list[str], folder: Path, *paths: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*paths, ROOT / "workflow")))}
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@cache
def planned(command: str, project: Path, *plugins: Path) -> str:
    """A dry run, with what it says. Profiles, config files and targets are there and fit together; what they submit
    is tested on a real Slurm."""
    program, *given = shlex.split(command)
    dry = [] if set(given) & set(PLANS_NOTHING) else ["--dry-run"]
    if program == "snakemake":
        return run([*SNAKEMAKE, *given, *dry], project, *plugins)
    return run([*ANCHORSCOPE, *given, *([] if "--" in given else ["--"]), *dry], project, *plugins)


def plan(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    command = command.removesuffix(" --dry-run")
    if "--workflow-profile" not in command:
        planned(command, place.project)
    else:  # resuming there is tested on a real Slurm; its options are those of a command that begins a run
        command = command.replace("anchorscope resume --", "snakemake")
        planned(command, place.project, request.getfixturevalue("plugins"))


def run_command(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    words = shlex.split(command.removeprefix("python -m "))[1:]
    folders = {"damage": place.finished, "needs": ROOT, "init": request.getfixturevalue("tmp_path")}
    folder = folders.get(words[0], place.run)
    said = run([*ANCHORSCOPE, *words], folder)
    match words[0]:
        case "score":
            (line,) = (line for line in said.splitlines() if line.startswith("{"))
            assert 0 < json.loads(line)["hallucinated"] < 1
        case "extract":
            folders = (folder / words[-1], place.finished / "results/activations/tiny/one/0000")
            files = [some / "resid.answer_last.parquet" for some in folders]
            found, expected = (set(pl.read_parquet(file, columns=["id"])["id"]) for file in files)
            assert found == expected
        case "damage":
            assert "are whole" in said
        case "init":
            assert (folder / words[1] / "config.yaml").is_file()
        case "needs":
            head, rule, row, _, verdict = said.splitlines()
            page = (ROOT / "docs/models.md").read_text()
            assert f"\n{head}\n{rule}\n" in page
            assert row.split(" | ", 1)[1] in page, "which has the model's title"
            assert "this machine " in verdict


def run_benchmark(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    script = ROOT / shlex.split(command)[1]
    words = f"{command} {SMALL[script.stem]}".replace("MODEL", str(place.finished / "tiny-model"))
    words = words.replace("RUN", str(place.finished))
    monkeypatch, capsys = (request.getfixturevalue(name) for name in ("monkeypatch", "capsys"))
    monkeypatch.setattr(sys, "argv", shlex.split(words)[1:])
    monkeypatch.syspath_prepend(script.parent)
    monkeypatch.chdir(place.finished)
    with suppress(SystemExit):  # of --help, and of a mistake, which prints nothing here
        runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out, words


def collect(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    """What pytest would run; that it does is for who asks for it, for it takes long."""
    files = [word for word in shlex.split(command) if word.startswith("tests/")]
    assert files
    assert all(f"\n{file}::" in collected() for file in files)


@cache
def collected() -> str:
    """What all such commands would run, with all their options."""
    given = {word for command in COMMANDS if command.startswith("pytest ") for word in shlex.split(command)[1:]}
    return "\n" + run([sys.executable, "-m", "pytest", "--collect-only", "-q", *sorted(given)], ROOT)


def make(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    run([*shlex.split(command), "--dry-run", "--always-make"], ROOT)


def run_in_shell(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    """On this machine's own paths."""
    folder = request.getfixturevalue("tmp_path")
    (folder / "results").mkdir()
    here = {"<this repository>": str(ROOT), ".venv/bin": f"{sys.prefix}/bin", "/scratch/me": f"{folder}/scratch"}
    for shown, meant in here.items():
        command = command.replace(shown, meant)
    run(["sh", "-e", "-c", command], folder)


def install(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    """The fixture installs that very file, into a folder of its own."""
    assert (request.getfixturevalue("plugins") / "snakemake_executor_plugin_slurm").is_dir()


def name_what_there_is(command: str, place: Place, request: pytest.FixtureRequest) -> None:
    """Wheels are installed by the tests of a whole run; that versions are these is seen here."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wheel = f"anchorscope-{project['version']}-py3-none-any.whl[run]"
    assert shlex.split(command)[-1] in (wheel, *(ROOT / "requirements.lock").read_text().split())


# Those of every run of the tests: what costs hardly anything, one plan, one benchmark, and one command of the package.
QUICK = r"make|mkdir|\. |pip|anchorscope damage|snakemake --cores all$|python benchmarks/bench_store\.py$"
WAYS = {
    r"(snakemake|anchorscope (run|detect|report|resume))( .*)?": plan,
    r"(python -m )?anchorscope (--help|(init|extract|score|needs|damage|compare) .*)": run_command,
    r"python benchmarks/\w+\.py.*": run_benchmark,
    r"pytest .*": collect,
    r"make \S+": make,
    r"(git clone|mkdir) .*|\. \.venv/bin/activate": run_in_shell,
    r"pip install --requirement requirements-cluster\.lock": install,
    r"pip install (--no-deps|\"anchorscope).*": name_what_there_is,
}


@pytest.mark.parametrize(
    "command",
    [pytest.param(command, marks=[] if re.match(QUICK, command) else pytest.mark.slow) for command in COMMANDS],
)
def test_every_command_of_the_pages_is_run(command, place, request):
    """Not collected from the text, and not run: what is asked of a cluster, a hub or a package index."""
    fitting = [way for pattern, way in WAYS.items() if re.fullmatch(pattern, command)]
    assert len(fitting) == 1, f"{len(fitting)} ways of this test run `{command}`; there must be one"
    fitting[0](command, place, request)


def test_the_command_for_the_published_models_plans_all_of_them(place):
    said = planned("snakemake --cores all --configfile config/paper.yaml", place.project)
    for job in ("fetch_model=14", "fetch_questions=4", "answer=56", "extract=56", "probe=56", "draw=7"):
        name, count = job.split("=")
        assert re.search(rf"^{name} +{count}$", said, re.M), job


@pytest.mark.slow
def test_every_target_is_described(place):
    said = planned("snakemake --list-target-rules", place.project)
    lines = [line for line in said.splitlines() if re.match(r"\w+( \(|$)", line)]
    names = {line.split()[0] for line in lines}
    assert names >= {"all", "fetch", "answers", "activations", "tables", "figures", "report"}
    assert all(re.fullmatch(r"\w+ \(\S.+\.\)", line) for line in lines), lines


@pytest.mark.parametrize(("page", "text"), SNIPPETS, ids=[f"{page.name}-{i}" for i, (page, _) in enumerate(SNIPPETS)])
def test_every_piece_of_python_runs_in_the_folder_of_a_run(page, text, place, monkeypatch, tmp_path):
    monkeypatch.chdir(place.run)
    if "anchorscope.open(" in text:  # which looks at all of a run, under the names that it has
        monkeypatch.chdir(tmp_path)
        Path("results").symlink_to(place.finished / "results")
        for shown, meant in NAMES_MEANT.items():
            text = text.replace(shown, meant)
    names = {"__name__": page.stem}
    exec(compile(text, page.name, "exec"), names)
    if "vectors" in names:
        written = place.vectors[COMPONENTS.index("resid"), 15, 0, POSITIONS.index("answer_last")]
        assert np.array_equal(names["vectors"], written.numpy())
