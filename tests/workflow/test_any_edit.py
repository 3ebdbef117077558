"""Whatever is done to a finished run, or to the next one: in the end the results are those of an undisturbed run.

Until then, each run that ends badly says why in a sentence, without a traceback. `pytest --all` tries 150 cases, each
drawn by its number, on a run with every experiment and with detection. SWEEP_EDITS=40-79 tries those numbers instead.
"""

import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from anchorscope.commands.damage import find_damage
from faults import (
    DAMAGES,
    FULL,
    KILLS,
    damage,
    differences,
    files,
    kill_machine,
    resize,
    resume,
    seeing_processes,
    start,
    tried,
)
from small_run import base_config, prepare, snakemake, start_again, write_config
from small_things import one_at_a_time

FIRST, LAST = map(int, os.getenv("SWEEP_EDITS", "0-149").split("-"))
TARGETS = ("all", "detect")
ROOMY = 500 * 1024  # kilobytes
Happening = Callable[[Path, random.Random], None]


@dataclass(frozen=True)
class Edit:
    """Other words in one place of a file."""

    file: str
    old: str
    new: str

    def do(self, folder: Path) -> None:
        text = (folder / self.file).read_text()
        assert self.old in text
        (folder / self.file).write_text(text.replace(self.old, self.new, 1))

    def undo(self, folder: Path) -> None:
        Edit(self.file, self.new, self.old).do(folder)


LIBRARY = "workflow/anchorscope"
# What is left in place when a run begins. Each of them has an undisturbed run of its own to be compared with.
LASTING = {
    "config": Edit("test.yaml", "folds: 5", "folds: 4"),
    "data": Edit("one.jsonl", "is number 7 of", "is number 700 of"),
    "code": Edit(f"{LIBRARY}/summarise/claims.py", "SIMILAR = 25.0", "SIMILAR = 24.0"),
}
# What a run begins with and is killed under, before it is undone.
PASSING = [
    *LASTING.values(),
    Edit("test.yaml", "seed: 0", "seed: 1"),
    Edit("test.yaml", "samples: 2", "samples: 3"),
    Edit("test.yaml", "title: ONE", "title: Other"),
    Edit("test.yaml", "bootstrap_draws: 100", "bootstrap_draws: 101"),
    Edit("one.jsonl", "nothing of the kind", "nothing of this kind"),
    Edit(f"{LIBRARY}/probe/strengths.py", "64.0, 16.0", "32.0, 16.0"),
    Edit(f"{LIBRARY}/extract/interventions.py", "CONTROL_REACH = 16", "CONTROL_REACH = 15"),
    Edit(f"{LIBRARY}/text/short_answer.py", "(?:will|would", "(?:shall|will|would"),
    Edit(f"{LIBRARY}/draw/style.py", "COLUMN = 3.3", "COLUMN = 3.4"),
]


def configure(folder: Path) -> None:
    """One dataset in one shard, with every experiment and every method of detection."""
    everything = {
        "experiments": ["patching", "answer_only", "boundary", "awareness", "saliency"],
        **{"samples": 2, "answer_scores": True},
    }
    small = {"seed": 0, "folds": 5, "questions": 80, "shard_size": 80, "bootstrap_draws": 100}
    config = base_config() | small | everything | {"components": ["resid"], "positions": ["answer_last"]}
    del config["datasets"]["two"]
    write_config(folder, config)


@pytest.fixture(scope="session")
def undisturbed(tokenizer, tmp_path_factory) -> Callable[[str | None], Path]:
    """Runs from nothing, as it is or with a lasting edit; each is made when it is first asked for, for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.getenv("PYTEST_XDIST_WORKER") else base

    def run(edit: str | None) -> Path:
        folder = shared / f"undisturbed-{edit or 'as it is'}"
        with one_at_a_time(f"undisturbed-{edit}"):
            if not (folder / "made").exists():
                folder.mkdir()
                start_again(run(None), folder) if edit else prepare(folder, tokenizer)
                configure(folder)
                if edit:
                    LASTING[edit].do(folder)
                done = snakemake(folder, *TARGETS)
                assert done.returncode == 0, done.stdout + done.stderr
                (folder / "made").touch()
        return folder

    return run


def passing_edit(folder: Path, draw: random.Random) -> None:
    edit = draw.choice(PASSING)
    edit.do(folder)
    run = start(folder, *TARGETS)
    wait(run, draw)
    kill_machine(run, folder, draw)
    edit.undo(folder)


def shown_files(folder: Path) -> list[Path]:
    """The results without hidden files, which come and go with the result beside them."""
    return sorted(path for path in files(folder / "results") if not any(part[0] == "." for part in path.parts))


def delete_a_result(folder: Path, draw: random.Random) -> None:
    (folder / "results" / draw.choice(shown_files(folder))).unlink()


def delete_a_stage(folder: Path, draw: random.Random) -> None:
    stages = {path.parts[0] for path in shown_files(folder) if len(path.parts) > 1}
    shutil.rmtree(folder / "results" / draw.choice(sorted(stages)))


def damage_a_result(folder: Path, draw: random.Random) -> None:
    tables = [path for path in shown_files(folder) if path.suffix == ".parquet"]
    if tables:
        damage(folder / "results" / draw.choice(tables), draw.choice(sorted(DAMAGES)))


def wait(run: subprocess.Popen, draw: random.Random) -> None:
    """A drawn time, or until the run has ended."""
    end = time.monotonic() + draw.uniform(2, 30)
    while run.poll() is None and time.monotonic() < end:
        time.sleep(0.02)


def killed(folder: Path, draw: random.Random) -> None:
    run = start(folder, *TARGETS)
    wait(run, draw)
    KILLS[draw.choice(sorted(KILLS))](run, folder, draw)
    run.wait()


def beside_a_second_run(folder: Path, draw: random.Random) -> None:
    runs = [start(folder, *TARGETS) for _ in range(2)]
    assert {run.wait() for run in runs} <= {0, 1}
    said = (folder / "said.txt").read_text()
    assert "is being resumed already, or a resumed run still works in it" in said
    assert "Traceback" not in said, said


def on_a_full_disk(folder: Path, draw: random.Random) -> None:
    used = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True).stdout.split()[0]
    resize(folder.parent, int(used) + draw.randint(20, 600))
    done = resume(folder, *TARGETS)
    text = done.stdout + done.stderr
    assert done.returncode == 0 or FULL in text or "No space left on device" in text or named_in(text), text
    resize(folder.parent, ROOMY)


def on_a_disk_that_is_only_read(folder: Path, draw: random.Random) -> None:
    while subprocess.run(["mount", "-o", "remount,ro", folder.parent], capture_output=True).returncode:
        time.sleep(0.1)  # until killed jobs are gone, with what they held open
    done = resume(folder, *TARGETS)
    subprocess.run(["mount", "-o", "remount,rw", folder.parent], check=True)
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "Read-only file system" in done.stderr


BETWEEN: dict[str, Happening] = {
    "a passing edit": passing_edit,
    "a result deleted": delete_a_result,
    "a stage deleted": delete_a_stage,
    "a result damaged": damage_a_result,
}
DURING: dict[str, Happening] = {
    "killed": killed,
    "a second run": beside_a_second_run,
    "a full disk": on_a_full_disk,
    "a read-only disk": on_a_disk_that_is_only_read,
    "left alone": lambda folder, draw: None,
}


def named_in(text: str) -> list[str]:
    """The files that a run says are damaged."""
    return sorted(set(re.findall(r"is damaged \(.*--forcerun (results/\S+)", text)))


def finish(folder: Path, *targets: str) -> int:
    """Run, and make again what is said to be damaged, until all is whole; how often a file was said to be damaged."""
    again: list[str] = []
    for times in range(6):
        done = resume(folder, *targets, *again)
        text = done.stdout + done.stderr
        assert "Traceback" not in text, text
        if done.returncode == 0:
            found = find_damage(folder / "results")
            named = [str(path.relative_to(folder)) for path, why in found.items() if why]
        else:
            named = named_in(text)
            assert named, text
        if not named:
            return times
        again = ["--forcerun", *named]
    raise AssertionError(f"still damaged: {named}")


@seeing_processes
@pytest.mark.slow
@pytest.mark.parametrize("number", range(FIRST, LAST + 1))
def test_whatever_is_done_to_a_run_the_next_gives_the_bytes_of_an_undisturbed_one(
    number, undisturbed, tmp_path, request
):
    draw = random.Random(number)
    lasting = draw.choices([None, *LASTING], [6, 1, 1, 1])[0]
    between = draw.sample(sorted(BETWEEN), draw.randint(0 if lasting else 1, 2))
    during = draw.choice(sorted(DURING))
    place = request.getfixturevalue("disk") if "disk" in during else tmp_path
    folder = place / "run"
    faults = [tried(kind, []) for kind in (*([f"{lasting} edited"] if lasting else []), *between, during)]
    shutil.copytree(undisturbed(None), folder, symlinks=True)
    for happening in between:
        BETWEEN[happening](folder, draw)
    if lasting:
        LASTING[lasting].do(folder)
    DURING[during](folder, draw)
    said = finish(folder, *TARGETS)
    expected = undisturbed(lasting)
    missing = [f"results/{path}" for path in shown_files(expected) if path not in shown_files(folder)]
    if missing:  # Snakemake makes a deleted file again when something needs it, or when it is asked for
        said += finish(folder, *TARGETS, *missing)
    assert not differences(folder / "results", expected / "results")
    for fault in faults:
        fault.survived = True
    kinds = ", ".join(fault.kind for fault in faults)
    print(f"case {number}: {kinds}; damage was named {said} times, {len(missing)} files had to be asked for")
    shutil.rmtree(folder)


@seeing_processes
def test_a_deleted_page_comes_back_beside_a_second_run(finished, tmp_path):
    """One cheap case, on a run that other tests share."""
    folder = tmp_path / "run"
    shutil.copytree(finished, folder, symlinks=True)
    (folder / "results/report.html").unlink()
    runs = [start(folder) for _ in range(2)]
    assert sorted(run.wait() for run in runs) == [0, 1]
    assert not differences(folder / "results", finished / "results")
