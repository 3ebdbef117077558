"""What a page puts between backticks is there: files, keys of the config, columns, values, functions and options."""

import re
from pathlib import Path

import pytest

from anchorscope.detect.methods import METHODS
from anchorscope.draw.registry import DETECTION_KINDS, FIGURE_KINDS
from pages import FENCED, PAGES, commands, without_blocks
from small_things import ROOT

CODE = ("workflow/**/*", "scripts/*", "config/*", "envs/*", "Snakefile", "config.yaml", "Makefile", "pyproject.toml")
FOLDERS = (".", "docs", "tests", "workflow", "workflow/anchorscope", "benchmarks/results")  # where pages begin a path
PATH = re.compile(r"[\w.{}*,…-]+(?:/[\w.{}*,…-]+)+/?|[\w-]+\.(?:py|smk|yaml|md|rst|sh|lock|toml)")
WORD = re.compile(r"[A-Za-z_]\w*")
# What others named: models, Python, Snakemake, Slurm, and what a reader would call things of theirs.
FOREIGN = set(
    """
    activate __pycache__ npy uint16 uint32 upgrade EOFError marshal recording HF_ENDPOINT HF_HUB_OFFLINE
    HF_HUB_DISABLE_TELEMETRY kernels auto_map pre_feedforward_layernorm storage provider s3 bucket tmux USER
    sinfo sacctmgr associations QOSMax PerJobLimit MinJobAge
    """.split()
)


def project() -> list[Path]:
    found = (path for pattern in CODE for path in ROOT.glob(pattern))
    return [path for path in found if path.is_file() and "__pycache__" not in path.parts]


def code_of_the_project() -> str:
    return " ".join(path.read_text(encoding="utf-8", errors="replace") for path in project())


def known_words(code: str) -> set[str]:
    """Every word of the project's code, of its file names, and of names that are put together."""
    words = {*WORD.findall(code), *(word for path in project() for word in WORD.findall(path.stem))}
    return words | METHODS.keys() | {f"{kind.name}_column" for kind in FIGURE_KINDS + DETECTION_KINDS}


def named(page: Path) -> list[str]:
    """Commands are left out, and files that a reader is to make: other tests run and make them."""
    text = re.sub(r"^New file `[^`]+`", "", without_blocks(page), flags=re.M)
    found = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]
    return [code for code in found if code not in commands(page)]


def missing(code: str, known: set[str], everything: str) -> list[str]:
    """A path that is no file of the project and that its code does not name; of anything else, words nobody knows."""
    if PATH.fullmatch(code) and not code.startswith("results/"):
        pattern = re.sub(r"\{[^}]*\}|…", "*", code.rstrip("/"))
        there = any(next((ROOT / folder).glob(pattern), None) for folder in FOLDERS)
        return [] if there or code in everything else [code]
    return [word for word in WORD.findall(code) if word not in known]


@pytest.fixture(scope="module")
def everything() -> str:
    return code_of_the_project()


@pytest.fixture(scope="module")
def known(everything) -> set[str]:
    return known_words(everything)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page, known, everything):
    """It may speak of what its own blocks show, and of lines that it tells readers to write."""
    shown = [text for _, text in FENCED.findall(page.read_text(encoding="utf-8"))]
    shown += re.findall(r"(?:the line|with)\s`([^`]+)`", without_blocks(page))
    allowed = known | FOREIGN | set(WORD.findall(" ".join(shown)))
    assert {code: words for code in named(page) if (words := missing(code, allowed, everything))} == {}


@pytest.mark.parametrize("code", ["probe/anchors.py", "results/sumary.csv", "delta_q", "--anchorz", "shard_sise: 20"])
def test_what_is_not_there_is_found(code, known, everything):
    assert missing(code, known, everything)
