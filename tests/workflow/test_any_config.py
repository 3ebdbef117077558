"""Whatever a config holds: it can be planned, or each mistake in it is one sentence; never a traceback."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st
from snakemake.common.configfile import load_configfile

from anchorscope.config_checks import mistakes
from anchorscope.config_files import file_mistakes
from mutations import YAML_KEYS, changed, spoilt, sweep, write
from small_things import ROOT

SCHEMA = yaml.safe_load((ROOT / "workflow/schemas/config.schema.yaml").read_text())
BASES = [yaml.safe_load((ROOT / name).read_text()) for name in ("config.yaml", "config/paper.yaml")]
MIXED = st.one_of(
    st.sampled_from(BASES).flatmap(lambda base: changed(base, keys=YAML_KEYS)).map(yaml.safe_dump).map(str.encode),
    st.sampled_from([(ROOT / name).read_bytes() for name in ("config.yaml", "config/paper.yaml")]).flatmap(spoilt),
)


def found_wrong(data: bytes, folder: Path) -> list[str]:
    """What is said about a config file, in the order in which a run checks it."""
    file = write(folder / "some.yaml", data)
    # Snakemake reads what passes the first check, and must be able to.
    return file_mistakes(file) or mistakes(load_configfile(file), SCHEMA)


@pytest.mark.parametrize("cases", [25, pytest.param(2000, marks=pytest.mark.slow)])
def test_every_mistake_is_one_sentence(cases, tmp_path):
    def judge(data: bytes) -> bool:
        sentences = found_wrong(data, tmp_path)
        for sentence in sentences:
            assert "\n" not in sentence
            assert len(sentence) < 600
            assert sentence.rstrip().endswith((".", "?"))
        return not sentences

    found = sweep(cases, MIXED, judge)
    assert min(found["accepted"], found["refused"]) > cases / 20


def dry_run(config: bytes, folder: Path) -> subprocess.CompletedProcess:
    folder.mkdir()
    write(folder / "some.yaml", config)
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--dry-run",
        "--cores",
        "1",
        "--configfile",
        str(folder / "some.yaml"),
    ]
    return subprocess.run(
        [*command, "--directory", str(folder)], cwd=ROOT, capture_output=True, text=True, env={**os.environ}
    )


@pytest.mark.slow
def test_what_has_no_mistake_can_be_planned_and_the_rest_is_refused_without_a_traceback(tmp_path):
    """The same configs before a real Snakemake, a few of each kind."""
    seen: dict[bool, list[bytes]] = {True: [], False: []}

    def collect(data: bytes) -> bool:
        valid = not found_wrong(data, tmp_path)
        if len(seen[valid]) < 8:
            seen[valid].append(data)
        return valid

    sweep(200, MIXED, collect)
    for valid, some in seen.items():
        assert len(some) == 8
        for number, config in enumerate(some):
            done = dry_run(config, tmp_path / f"{valid}-{number}")
            said = done.stdout + done.stderr
            assert (done.returncode == 0) == valid, said[-2000:]
            assert "Traceback" not in said
            assert valid or "The config cannot be run:" in said


@pytest.mark.parametrize("name", ["..", "../up", "a/b", "/abs", ".hidden", "-rf", "a b", ""])
@pytest.mark.parametrize("kind", ["models", "datasets", "figures"])
def test_a_name_that_would_leave_the_results_folder_is_refused(kind, name):
    config = copy.deepcopy(BASES[0])
    config[kind][name] = next(iter(config[kind].values()))
    (sentence,) = mistakes(config, SCHEMA)
    assert "becomes part of file names" in sentence
