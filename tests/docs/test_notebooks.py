"""Notebooks run from top to bottom, show pictures early, and are kept without their outputs."""

import re
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from anchorscope.detect.train_detector import train_detector
from planted_detector import FITTING, SOURCES
from small_things import ROOT

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
PARAMETERS = "parameters"  # the tag of the cell that names the run


def read(name: str) -> NotebookNode:
    return nbformat.read(ROOT / f"docs/notebooks/{name}.ipynb", as_version=4)


def code_of(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def executed(tmp_path, monkeypatch) -> Callable[..., list[NotebookNode]]:
    """Runs a notebook where it lies, with other values for what its first cell of code names; gives its outputs."""
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the notebook's own shows figures
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # other tests have the other cores

    def run(name: str, **given: str) -> list[NotebookNode]:
        notebook = read(name)
        if given:
            names = re.findall(r"\w+", code_of(notebook)[0].source.split("=")[0])
            assert names == list(given), "the cell names what is replaced"
            code_of(notebook)[0].source = "\n".join(f"{name} = {value!r}" for name, value in given.items())
        where = {"metadata": {"path": str(ROOT / "docs/notebooks")}}
        NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
        return [output for cell in code_of(notebook) for output in cell.outputs]

    return run


def texts(outputs: list[NotebookNode]) -> str:
    return "\n".join(output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs)


def pictures(outputs: list[NotebookNode]) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_valid_and_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in code_of(notebook):
        assert (cell.outputs, cell.execution_count) == ([], None), cell.source
    assert [PARAMETERS in cell.metadata.get("tags", []) for cell in code_of(notebook)].index(True) == 0
    assert sum(PARAMETERS in cell.metadata.get("tags", []) for cell in code_of(notebook)) == 1
    assert notebook.metadata.keys() == {"kernelspec", "language_info"}


def test_a_first_look_shows_the_gaps_that_the_readme_tells(executed):
    outputs = executed("first_look")
    told = re.findall(r"^\| (?:published rule|honest\b[^|]*) \| (−\d+\.\d).* \| (−\d+\.\d)", README, re.M)
    assert len(told) == 3
    for model, gaps in zip(("smollm2-135m", "qwen2.5-coder-1.5b"), zip(*told, strict=True), strict=True):
        row = [model, *(gap.replace("−", "-") for gap in gaps)]
        assert re.search(" +┆ ".join(map(re.escape, row)), texts(outputs)), row
    assert pictures(outputs) == 3
    assert "image/png" in outputs[1].data, "the picture comes first, after the name of the run"


def test_an_own_probe_is_trained_on_the_states_of_a_run(executed, finished):
    outputs = executed("own_probe", folder=str(finished), model="tiny", dataset="one")
    shown = texts(outputs)
    own, theirs = (float(number) for number in re.findall(r"(?:this probe|the run's own) +(\d\.\d+)", shown))
    assert 0 <= own <= 1
    assert 0 <= theirs <= 1
    assert -1 <= float(re.search(r"cosine: (-?\d\.\d+)", shown)[1]) <= 1
    assert pictures(outputs) == 3


@pytest.fixture(scope="module")
def detected(finished, tmp_path_factory) -> Path:
    """The finished run, linked, with a detector beside it."""
    results = tmp_path_factory.mktemp("detected") / "results"
    results.mkdir()
    for path in (finished / "results").iterdir():
        (results / path.name).symlink_to(path)
    files = {
        name: sorted((results / "activations/tiny" / name).glob("*/resid.answer_last.parquet"))
        for name in ("one", "two")
    }
    detector, card = (results / f"detectors/tiny.{end}" for end in ("safetensors", "md"))
    train_detector(files, results / "models/tiny.json", detector, card, sources=SOURCES, fitting=FITTING)
    return results


def test_answers_are_scored_with_the_detector_of_a_run(executed, detected):
    outputs = executed("score_answers", folder=str(detected), model="tiny")
    assert "answers to questions of one, two." in texts(outputs)
    assert pictures(outputs) == 2
