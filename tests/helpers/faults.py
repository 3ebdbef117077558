"""Real faults for real runs: the jobs in a folder, ways to break them, and what came of it."""

import base64
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTIONS = ["--cores", "2", "--configfile", "test.yaml"]
RESUME = [sys.executable, "-m", "anchorscope", "resume"]
seeing_processes = pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="these tests look for processes in /proc"
)
FULL = "could not be written because its disk is full; make room there and run the same command again"
NOT_RESULTS = {"logs", "benchmarks", ".hashes"}  # they say when, how fast and of which file on this disk


@dataclass
class Fault:
    """One thing that was done to a run, the jobs that it hit, and whether all was well in the end."""

    kind: str
    hit: list[str]
    survived: bool = False


TRIED: list[Fault] = []


def tried(kind: str, hit: list[str]) -> Fault:
    TRIED.append(Fault(kind, hit))
    return TRIED[-1]


def table() -> list[str]:
    """The faults tried, by kind."""
    rows = ["| fault | tried | hit a running job | survived |", "|---|---|---|---|"]
    for kind in dict.fromkeys(fault.kind for fault in TRIED):
        mine = [fault for fault in TRIED if fault.kind == kind]
        hit, survived = sum(bool(fault.hit) for fault in mine), sum(fault.survived for fault in mine)
        rows.append(f"| {kind} | {len(mine)} | {hit} | {survived} |")
    hit = Counter(rule for fault in TRIED for rule in fault.hit)
    return [*rows, "", "jobs hit: " + ", ".join(f"{count} {rule}" for rule, count in sorted(hit.items()))]


def start(folder: Path, *arguments: str) -> subprocess.Popen:
    """Start or resume the run in `folder`, in a process group of its own; what it says goes to `said.txt`."""
    command = [*RESUME, "--", *arguments, *OPTIONS]
    with open(folder / "said.txt", "a", encoding="utf-8") as said:
        return subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True)


def resume(folder: Path, *arguments: str, own: Sequence[str] = ()) -> subprocess.CompletedProcess:
    """Resume the run in `folder`; `own` are options that are not Snakemake's."""
    return subprocess.run([*RESUME, *own, "--", *arguments, *OPTIONS], cwd=folder, capture_output=True, text=True)


def state(process: int) -> str:
    """Linux's letter for what a process does; Z, for one that has ended, also when nothing of it is left."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def scripts_in(folder: Path) -> dict[int, str]:
    """The living jobs that work in `folder`, and their rules."""
    scripts = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            inside = os.readlink(entry / "cwd") == str(folder)
            words = (entry / "cmdline").read_text().split("\0") if inside else []
        except OSError:
            continue
        script = re.fullmatch(r".*/\.snakemake/scripts/\w+\.(\w+)\.py", words[1]) if len(words) > 1 else None
        if script and state(int(entry.name)) != "Z":
            scripts[int(entry.name)] = script[1]
    return scripts


def kill(process: int) -> bool:
    """SIGKILL a process; whether it was alive then. A stopped process cannot end by itself before the kill arrives."""
    try:
        os.kill(process, signal.SIGSTOP)
        while state(process) not in "TZ":
            time.sleep(0.001)
        alive = state(process) == "T"
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return alive


def kill_snakemake(run: subprocess.Popen, folder: Path, draw: random.Random) -> list[str] | None:
    """Only Snakemake itself, when it has begun a job: its jobs go on without it."""
    while alive(run) and not scripts_in(folder):
        time.sleep(0.02)
    killed = alive(run) and kill(run.pid)
    run.wait()
    return list(scripts_in(folder).values()) if killed else None


def kill_machine(run: subprocess.Popen, folder: Path, draw: random.Random) -> list[str] | None:
    """Snakemake and all jobs at once, as when the machine goes down."""
    if not alive(run):
        return None
    hit = list(scripts_in(folder).values())
    os.killpg(run.pid, signal.SIGKILL)
    return hit if run.wait() == -signal.SIGKILL else None


def kill_job(run: subprocess.Popen, folder: Path, draw: random.Random) -> list[str] | None:
    """One job's process; Snakemake goes on with the others."""
    while alive(run):
        running = scripts_in(folder)
        if running:
            process = draw.choice(sorted(running))
            if kill(process):
                return [running[process]]
        time.sleep(0.02)
    return None


def kill_writer(run: subprocess.Popen, folder: Path, draw: random.Random) -> list[str] | None:
    """All at once, while a job has a file half written; it is left there."""
    while alive(run):
        if list((folder / "results").rglob("*.part")):
            hit = kill_machine(run, folder, draw)
            return hit if list((folder / "results").rglob("*.part")) else None
        time.sleep(0.002)
    return None


KILLS: dict[str, Callable] = {
    "Snakemake killed, its jobs go on": kill_snakemake,
    "a job killed, Snakemake goes on": kill_job,
    "everything killed": kill_machine,
    "everything killed with a file half written": kill_writer,
}


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda whole: whole[: len(whole) // 2],
    "empty": lambda whole: b"",
    "bit-flipped": lambda whole: whole[:50] + bytes([whole[50] ^ 4]) + whole[51:],
}


def damage(path: Path, kind: str) -> None:
    """Damage a file as a disk does: its time is the old one."""
    times = path.stat()
    path.write_bytes(DAMAGES[kind](path.read_bytes()))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def resize(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", disk], check=True)


def alive(run: subprocess.Popen) -> bool:
    return run.poll() is None


def disturb(folder: Path, kinds: list[str], draw: random.Random, waits: tuple[float, float]) -> list[Fault]:
    """Run, break and resume in `folder` until the run finishes; what was tried is taken from the end of `kinds`.

    Each fault comes a drawn number of seconds after the start, or after the fault before it. What was finished before a
    fault must not be computed again.
    """
    faults: list[Fault] = []
    done: dict[Path, int] = {}
    while True:
        run, job_killed = start(folder), False
        while kinds and alive(run):
            wait_for(run, draw.uniform(*waits))
            done = still_there(done, folder)
            hit = KILLS[kinds[-1]](run, folder, draw)
            if hit is not None:
                faults.append(tried(kinds.pop(), hit))
                job_killed = job_killed or faults[-1].kind.startswith("a job")
        code = run.wait()
        done = still_there(done, folder)
        if code == 0:
            return faults
        assert code == -signal.SIGKILL or job_killed, (folder / "said.txt").read_text()


def wait_for(run: subprocess.Popen, seconds: float) -> None:
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def still_there(done: dict[Path, int], folder: Path) -> dict[Path, int]:
    """What is finished now, with its time; everything that was finished before must be there, and not written again."""
    now = finished_outputs(folder)
    assert done.items() <= now.items(), sorted(path for path in done if done[path] != now.get(path))
    return now


def finished_outputs(folder: Path) -> dict[Path, int]:
    """The outputs whose job has ended well, and when they were written."""
    begun = {base64.b64decode(path.name).decode() for path in (folder / ".snakemake/incomplete").rglob("*")}
    return {
        path: written
        for path, written in files(folder / "results").items()
        if f"results/{path}" not in begun and path.suffix != ".part"
    }


def files(results: Path) -> dict[Path, int]:
    """The results of a run, temporary files and all, and when they were written. Links to a model's files are not."""
    paths = [path.relative_to(results) for path in results.rglob("*") if path.is_file() and not path.is_symlink()]
    return {path: (results / path).stat().st_mtime_ns for path in paths if NOT_RESULTS.isdisjoint(path.parts)}


def differences(results: Path, expected: Path) -> list[str]:
    """Where the results of two runs differ in a byte, and what only one of them has."""
    made, wanted = set(files(results)), set(files(expected))
    changed = [path for path in made & wanted if (results / path).read_bytes() != (expected / path).read_bytes()]
    return sorted(map(str, [*changed, *(made ^ wanted)]))
