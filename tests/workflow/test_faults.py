"""Runs that are broken and resumed: the results are those of an undisturbed run, byte for byte.

A few faults, unless `pytest --all tests/workflow/test_faults.py` asks for all of them, which takes long.
"""

import os
import platform
import random
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from anchorscope.files.atomic import atomic
from faults import (
    FULL,
    KILLS,
    OPTIONS,
    RESUME,
    alive,
    differences,
    disturb,
    resize,
    resume,
    scripts_in,
    seeing_processes,
    start,
    tried,
)
from small_run import SNAKEMAKE, base_config, rewind, snakemake, start_again, write_config
from small_things import ROOT

SEED = 20
NO_JOB, JOB, ALL, WRITER = KILLS
MANY = [NO_JOB, JOB] * 10 + [ALL, WRITER] * 5
BEFORE_EXTRACTION = ("raw", "questions", "models", "answers", "chosen")
ACTIVATIONS = [
    f"results/activations/tiny/{name}/{shard}/resid.answer_last.parquet"
    for name in ("one", "two")
    for shard in ("0000", "0001")
]


@seeing_processes
@pytest.mark.slow
def test_killed_runs_are_resumed_and_give_the_bytes_of_an_undisturbed_one(finished, tmp_path):
    """A run starts from nothing and is resumed until it finishes; where kills are left then, they go to a new one."""
    draw = random.Random(SEED)
    kinds = draw.sample(MANY, len(MANY))
    planned, faults = len(kinds), []
    while kinds:
        folder = tmp_path / str(len(kinds))
        start_again(finished, folder)
        survived = disturb(folder, kinds, draw, (3, 20))
        assert not differences(folder / "results", finished / "results")
        assert not scripts_in(folder)
        for fault in survived:
            fault.survived = True
        faults += survived
    assert len(faults) == planned
    assert any(fault.hit for fault in faults if fault.kind == NO_JOB), "no job went on without Snakemake"


@seeing_processes
@pytest.mark.slow
def test_of_two_runs_started_at_once_one_refuses_and_so_does_any_later_one(finished, tmp_path):
    folder = rewind(finished, tmp_path / "run", *BEFORE_EXTRACTION, "activations")
    runs = [start(folder), start(folder)]
    while all(map(alive, runs)):
        time.sleep(0.05)
    (refused,) = (run for run in runs if not alive(run))
    (first,) = (run for run in runs if alive(run))
    fault = tried("a second run started at once", [])
    assert refused.returncode == 1
    assert "is being resumed already, or a resumed run still works in it" in (folder / "said.txt").read_text()
    while alive(first) and not scripts_in(folder):
        time.sleep(0.05)
    later = [tried("a second run started later", list(scripts_in(folder).values())) for _ in range(2)]
    plain, resumed = snakemake(folder), resume(folder)
    assert alive(first), "the first run was still at work"
    assert plain.returncode == resumed.returncode == 1
    assert "Error: Directory cannot be locked." in plain.stdout + plain.stderr
    assert "is being resumed already, or a resumed run still works in it; wait until that has ended" in resumed.stderr
    assert first.wait() == 0, (folder / "said.txt").read_text()
    assert not differences(folder / "results", finished / "results")
    for one in (fault, *later):
        one.survived = True


@seeing_processes
@pytest.mark.slow
def test_a_run_is_not_resumed_beside_a_plain_one_and_its_stubborn_orphan_is_ended(finished, tmp_path):
    folder = rewind(finished, tmp_path / "run", *BEFORE_EXTRACTION)
    plain = subprocess.Popen([*SNAKEMAKE, *OPTIONS], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    while alive(plain) and not scripts_in(folder):
        time.sleep(0.05)
    resumed = resume(folder)
    assert resumed.returncode == 1
    assert f"still works in {folder} as process {plain.pid}; wait until it has ended" in resumed.stderr
    fault = tried("Snakemake killed, a job ignores SIGTERM", list(scripts_in(folder).values()))
    plain.kill()
    assert plain.wait() == -9
    script = folder / ".snakemake/scripts/tmp1.stubborn.py"
    script.write_text("import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint(flush=True)\ntime.sleep(600)\n")
    stubborn = subprocess.Popen([sys.executable, str(script)], cwd=folder, stdout=subprocess.PIPE)
    stubborn.stdout.readline()
    resumed = resume(folder, ACTIVATIONS[0])
    assert resumed.returncode == 0, resumed.stderr
    said = [line for line in resumed.stderr.splitlines() if line.startswith("resume: ")]
    assert f"sent SIGKILL to jobs that the killed run left: {stubborn.pid}" in said[1]
    assert said[-2:] == ["resume: removed the lock of the killed run", "resume: starting snakemake"]
    assert stubborn.wait() == -9
    assert (folder / ACTIVATIONS[0]).read_bytes() == (finished / ACTIVATIONS[0]).read_bytes()
    fault.survived = True


@seeing_processes
@pytest.mark.slow
def test_a_run_from_another_machine_is_resumed_only_when_that_is_said_to_have_ended(finished, tmp_path):
    folder = rewind(finished, tmp_path / "run", *(path.name for path in (finished / "results").iterdir()))
    log = max((folder / ".snakemake/log").glob("*.log"))
    log.write_text(log.read_text().replace(f"Host: {platform.node()}", "Host: elsewhere"))
    (folder / ".snakemake/locks").mkdir(exist_ok=True)
    (folder / ".snakemake/locks/0.output.lock").write_text("results/report.html\n")
    assert snakemake(folder).returncode == 1, "which leaves a log of this machine"
    resumed = resume(folder)
    assert resumed.returncode == 1
    assert "was started on elsewhere, and whether it is still alive cannot be seen" in resumed.stderr
    assert resume(folder, "--dry-run").returncode == 0
    assert list((folder / ".snakemake/locks").iterdir()), "a dry run touches nothing"
    resumed = resume(folder, own=["--ended-elsewhere"])
    assert resumed.returncode == 0, resumed.stderr
    assert "Nothing to be done" in resumed.stdout + resumed.stderr


def planned_with_temporary(folder: Path) -> str:
    """The last line of a run whose temporary files should go to `folder`."""
    command = [*SNAKEMAKE, "--cores", "1", "results/questions/nq-mini.parquet", "--directory", str(folder.parent)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    return done.stderr.strip().splitlines()[-1]


def test_a_full_disk_for_temporary_files_is_named_before_any_job(disk):
    shutil.copy2(ROOT / "config.yaml", disk.parent)
    resize(disk, 64)
    assert planned_with_temporary(disk) == (
        f"TMPDIR names {disk}, where no temporary file can be written (No space left on device); "
        "make room there, or set it to another folder."
    )


def test_a_run_on_a_disk_that_is_only_read_is_not_resumed(disk):
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    command = [*RESUME, "--", "--cores", "1", "--snakefile", str(ROOT / "Snakefile")]
    done = subprocess.run(command, cwd=disk, capture_output=True, text=True)
    assert done.returncode == 1
    said = f"resume: {disk} cannot be written (Read-only file system); make it writable, or make room there, and"
    assert done.stderr == f"{said} try again.\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="only Linux has a folder where nobody can write")
def test_a_folder_for_temporary_files_where_nobody_can_write_is_named(tmp_path):
    shutil.copy2(ROOT / "config.yaml", tmp_path)
    (tmp_path / "link").symlink_to("/proc")
    said = planned_with_temporary(tmp_path / "link")
    assert said.startswith(f"TMPDIR names {tmp_path / 'link'}, where no temporary file can be written (")


@pytest.mark.slow
def test_a_disk_that_is_full_in_the_middle_of_extraction_is_named_and_the_rest_comes_when_there_is_room(
    finished, tmp_path, disk
):
    folder = rewind(finished, tmp_path / "run", *BEFORE_EXTRACTION)
    (folder / "results/activations").symlink_to(disk)
    first, second, *_ = ACTIVATIONS
    (folder / first).parent.mkdir(parents=True)
    shutil.copy2(finished / first, folder / first)
    resize(disk, int(1.5 * (finished / first).stat().st_size / 1024))
    done = snakemake(folder, first, second)
    fault = tried("disk full during extraction", re.findall(r"^Error in rule (\w+)", done.stdout + done.stderr, re.M))
    assert done.returncode == 1
    assert fault.hit == ["extract"]
    log = folder / "results/logs/extract/tiny/one/0001.log"
    assert f"{second} {FULL}" in log.read_text().splitlines()[-1]
    assert [path.name for path in disk.rglob("*.*")] == [Path(first).name], "only what was there before"
    resize(disk, 50 * 1024)
    done = snakemake(folder, first, second)
    assert done.returncode == 0, done.stderr
    for file in (first, second):
        assert (folder / file).read_bytes() == (finished / file).read_bytes()
    fault.survived = True


@pytest.mark.slow
def test_a_disk_that_fills_while_the_next_batch_is_computed_ends_the_job_in_one_sentence(finished, disk):
    """Row groups of 16 examples, so that the thread that writes meets the full disk, and not the end of the job."""
    resize(disk, 32)
    small_groups = (
        "import runpy, anchorscope.extract.store as store; store.GROUP_BYTES = 1; runpy.run_module('anchorscope')"
    )
    inputs = ["results/models/tiny.json", "results/chosen/tiny/one/0000.parquet", str(disk / "full")]
    command = [sys.executable, "-c", small_groups.replace("')", "', run_name='__main__')"), "extract", *inputs]
    done = subprocess.run([*command, "--dtype", "float32"], cwd=finished, capture_output=True, text=True)
    fault = tried("disk full in the thread that writes", ["extract"])
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{disk / 'full/resid.answer_last.parquet'} {FULL}" in done.stderr.splitlines()[-1]
    assert not list(disk.rglob("*.*"))
    fault.survived = True


WRITERS = {
    "polars, Parquet": lambda numbers, file: pl.DataFrame({"a": numbers}).write_parquet(file),
    "polars, CSV": lambda numbers, file: pl.DataFrame({"a": numbers}).write_csv(file),
    "arrow": lambda numbers, file: pq.write_table(pa.table({"a": numbers}), file),
    "safetensors": lambda numbers, file: save_file({"a": torch.from_numpy(numbers)}, file),
    "text": lambda numbers, file: file.write_text(str(numbers.tolist())),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_whichever_library_meets_the_full_disk_the_sentence_is_the_same(write, disk):
    resize(disk, 100)
    with pytest.raises(OSError, match=f"^{disk}/numbers {FULL}"), atomic(disk / "numbers") as target:
        write(np.random.default_rng(0).random(50_000), target)
    assert not list(disk.iterdir())


def test_a_job_removes_what_a_killed_one_left_of_its_file_and_nothing_else(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    host = platform.node()
    left = tmp_path / f".numbers.csv.{host}.{gone.pid}.part"
    others = [
        tmp_path / f".numbers.csv.{host}.{os.getppid()}.part",
        tmp_path / f".numbers.csv.elsewhere.{gone.pid}.part",
        tmp_path / f".other.csv.{host}.{gone.pid}.part",
    ]
    for file in (left, *others):
        file.write_text("half a li")
    with atomic(tmp_path / "numbers.csv") as target:
        target.write_text("whole\n")
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "numbers.csv", *others])


@pytest.mark.slow
def test_a_run_whose_whole_folder_is_on_a_full_disk_goes_on_each_time_there_is_room(
    finished, disk, tmp_path, monkeypatch
):
    """Snakemake's own records are on that disk, too. It grows by drawn steps until the run has finished.

    Compiled modules are elsewhere: Python before 3.12.8 leaves half of one on a full disk, and then cannot import it.
    """
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    draw = random.Random(SEED)
    folder = start_again(finished, disk / "run")
    size = int(subprocess.run(["du", "-sk", disk], capture_output=True, text=True, check=True).stdout.split()[0])
    faults = []
    while True:
        size += draw.randint(40, 500)
        resize(disk, size)
        done = snakemake(folder)
        if done.returncode == 0:
            break
        text = done.stdout + done.stderr
        assert FULL in text or "No space left on device" in text, text
        faults.append(tried("disk full, Snakemake's records on it", re.findall(r"^Error in rule (\w+)", text, re.M)))
    assert len(faults) > 3
    assert not differences(folder / "results", finished / "results")
    for fault in faults:
        fault.survived = True


SHORT_OF_MEMORY = """
import sys

script = next((word for word in sys.orig_argv if ".snakemake/scripts/" in word), None)
if script:
    import numpy, torch

    def on_a_gpu():
        raise torch.OutOfMemoryError("CUDA out of memory.")

    ways = [lambda: torch.empty(2**60), lambda: numpy.empty(2**55), on_a_gpu]
    failing = ways[:2] if script.endswith(".answer.py") else ways[1:]
    forward = torch.nn.Linear.forward

    def short(self, input):
        if failing and input.numel() > 300 * input.shape[-1]:
            failing.pop(0)()
        return forward(self, input)

    torch.nn.Linear.forward = short
"""


@pytest.mark.slow
def test_jobs_that_run_out_of_memory_twice_end_well(finished, tmp_path):
    """A batch of more than 300 tokens fails in torch on the host and then in numpy, or in numpy and then as on a GPU.

    Answers are the bytes of an undisturbed run. Activations are the bytes of a run with the smaller batches from its
    start: how many examples are multiplied together changes the last bits of a product.
    """
    folder = rewind(finished, tmp_path / "run", *BEFORE_EXTRACTION)
    (tmp_path / "fault").mkdir()
    (tmp_path / "fault/sitecustomize.py").write_text(SHORT_OF_MEMORY)
    command = [*SNAKEMAKE, ACTIVATIONS[0], "--forcerun", "answer", *OPTIONS]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "fault")}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    budgets = {}
    for rule in ("answer", "extract"):
        log = (folder / f"results/logs/{rule}/tiny/one/0000.log").read_text()
        budgets[rule] = re.findall(r"out of memory at \d+ tokens per batch; going on with (\d+)", log)
        assert len(budgets[rule]) == 2
    faults = [tried("out of memory twice", [rule]) for rule in budgets]
    answers = "results/answers/tiny/one/0000.parquet"
    assert (folder / answers).read_bytes() == (finished / answers).read_bytes()
    found = (folder / ACTIVATIONS[0]).read_bytes()
    write_config(folder, base_config() | {"batch_tokens": int(budgets["extract"][-1])})
    done = snakemake(folder, ACTIVATIONS[0])
    assert done.returncode == 0, done.stderr
    assert "out of memory" not in (folder / "results/logs/extract/tiny/one/0000.log").read_text()
    assert (folder / answers).read_bytes() == (finished / answers).read_bytes()
    assert (folder / ACTIVATIONS[0]).read_bytes() == found
    for fault in faults:
        fault.survived = True
