"""`anchorscope resume`: continue a run that was killed, with whatever `anchorscope run` or `snakemake` was given.

`snakemake --unlock` and `--rerun-incomplete` are the last two steps. Before them, this refuses while the run may still
be alive, and ends the jobs that it left, here and on a Slurm cluster: they would write the same files. Finished files
are kept. Where nothing was killed, it only starts `snakemake`.
"""

import argparse
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from glob import glob
from pathlib import Path
from typing import NoReturn

import psutil

from anchorscope.commands.workflow import (
    SNAKEMAKE,
    add_snakemake_arguments,
    become_snakemake,
    known_options,
    snakemake_words,
)

SECONDS_TO_END = 5
SECONDS_TO_CANCEL = 300
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def say(text: str) -> None:
    print(f"resume: {text}", file=sys.stderr, flush=True)


def refuse(text: str) -> NoReturn:
    sys.exit(f"resume: {text}")


def processes(folder: Path) -> dict[int, list[str]]:
    """The command line of every other process of this machine that works in `folder`, as far as they may be seen."""
    return {
        process.pid: process.info["cmdline"]
        for process in psutil.process_iter(["cwd", "cmdline"])
        if process.pid != os.getpid() and process.info["cwd"] == str(folder) and process.info["cmdline"]
    }


def runs_snakemake(command: list[str]) -> bool:
    """Whether this is `snakemake` or `python -m snakemake`."""
    return Path(command[0]).name.startswith("python") and "snakemake" in [Path(word).name for word in command[1:4]]


def is_run(command: list[str]) -> bool:
    """Whether this is a Snakemake that plans and starts jobs; one that does a single job is given a `--mode`."""
    return runs_snakemake(command) and "--mode" not in command


def is_job(command: list[str]) -> bool:
    """Whether this is a job of Snakemake: a copy of a script, the shell around it, a Snakemake for one job, or a
    command that is still submitting one."""
    if runs_snakemake(command):
        return not is_run(command)
    shell = Path(command[0]).name.startswith(("python", "bash", "sh"))
    return shell and any(".snakemake/scripts/" in word or ".snakemake/tmp." in word for word in command)


def hold(folder: Path) -> None:
    """Keep any other resume out until the Snakemake that this process becomes has ended."""
    # Not filelock: its lock would end here, with the file closed when this process becomes Snakemake.
    import fcntl  # not on Windows, which was refused

    try:
        (folder / ".snakemake").mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / ".snakemake" / "resume.lock", os.O_RDWR | os.O_CREAT)
    except OSError as error:
        refuse(f"{folder} cannot be written ({error.strerror}); make it writable, or make room there, and try again.")
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse(f"{folder} is being resumed already, or a resumed run still works in it; wait until that has ended.")
    except OSError:
        say("this file system has no locks: make sure that nobody else resumes this run at the same time")


def refuse_if_alive(folder: Path) -> None:
    for process, command in processes(folder).items():
        if is_run(command):
            refuse(f"Snakemake still works in {folder} as process {process}; wait until it has ended, or end it first.")


def logs(folder: Path) -> list[str]:
    """The logs that Snakemake wrote in this folder, newest first."""
    files = sorted((folder / ".snakemake" / "log").glob("*.snakemake.log"), reverse=True)
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def is_locked(folder: Path) -> bool:
    return any((folder / ".snakemake" / "locks").glob("*.lock"))


def host_of_last_run(folder: Path) -> str | None:
    """The machine on which the run that last locked this folder was started; runs that found it locked do not count."""
    for text in logs(folder):
        host = re.search(r"^ *host: *(\S+)", text, re.MULTILINE | re.IGNORECASE)
        if host and "LockException" not in text:
            return host[1]
    return None


def refuse_if_elsewhere(folder: Path) -> None:
    host = host_of_last_run(folder)
    if is_locked(folder) and host not in (None, platform.node()):
        refuse(
            f"The run in {folder} was started on {host}, and whether it is still alive cannot be seen from "
            f"{platform.node()}; resume it there, or add --ended-elsewhere if you know that it has ended."
        )


def cluster_jobs(folder: Path) -> list[str]:
    """The Slurm ids of all jobs of runs in `folder`, except the job that this is.

    The profile `sbatch` names its jobs `anchorscope`; the Slurm plugin names them after the run, by a UUID.
    """
    question = ["squeue", "--all", "--noheader", "--array", "--format", "%A|%i|%j|%Z"]
    asked = subprocess.run(question, capture_output=True, text=True)
    if asked.returncode:
        refuse(f"squeue does not say which jobs are still running; try again later. {asked.stderr.strip()}")
    jobs = []
    for line in asked.stdout.splitlines():
        number, job, name, workdir = line.split("|", 3)
        named = name == "anchorscope" or UUID.search(name)
        if named and os.path.realpath(workdir) == str(folder) and number != os.getenv("SLURM_JOB_ID"):
            jobs.append(job)
    return jobs


def cancel_cluster_jobs(folder: Path) -> None:
    """Cancel the Slurm jobs that dead runs left, and wait until they are gone: they write the same files."""
    said = re.compile("SLURM run ID|external jobid")
    if not (folder / ".snakemake" / "slurm_logs").exists() and not any(map(said.search, logs(folder))):
        return
    if not shutil.which("squeue"):
        say("runs of this folder used Slurm, which cannot be asked here: make sure that none of their jobs is left")
        return
    left = cluster_jobs(folder)
    if not left:
        say("no Slurm jobs are left")
        return
    # scancel complains about a job that has just ended by itself; what counts is the queue.
    complaint = subprocess.run(["scancel", *left], capture_output=True, text=True).stderr.strip()
    say(f"cancelled {len(left)} Slurm jobs")
    deadline = time.monotonic() + SECONDS_TO_CANCEL
    while left := cluster_jobs(folder):
        if time.monotonic() > deadline:
            refuse(
                f"The Slurm jobs {', '.join(left)} are still there {SECONDS_TO_CANCEL} seconds after they were "
                f"cancelled; resume when squeue no longer lists them. {complaint}"
            )
        say(f"waiting for {len(left)} cancelled Slurm jobs to end")
        time.sleep(5)


def end_orphans(folder: Path) -> None:
    """End the jobs that a dead run left on this machine, and wait until they are gone."""
    for number, patience in ((signal.SIGTERM, SECONDS_TO_END), (signal.SIGKILL, float("inf"))):
        deadline = time.monotonic() + patience
        orphans = [process for process, command in processes(folder).items() if is_job(command)]
        if not orphans:
            return
        for process in orphans:
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue
        say(f"sent {signal.Signals(number).name} to jobs that the killed run left: {', '.join(map(str, orphans))}")
        while time.monotonic() < deadline and set(orphans) & set(processes(folder)):
            time.sleep(0.1)


def remove_leftovers(folder: Path) -> None:
    """Remove the files that killed jobs of any machine left half written; no job is alive at this point."""
    left = [folder / name for name in glob("results/**/.*.part", root_dir=folder, recursive=True)]
    for path in left:
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    if left:
        say(f"removed {len(left)} half-written files")


def unlock(folder: Path, arguments: list[str]) -> None:
    if not is_locked(folder):
        return
    done = subprocess.run([*SNAKEMAKE, *arguments, "--unlock"], capture_output=True, text=True)
    if done.returncode:
        refuse(f"The lock of the killed run could not be removed:\n{done.stderr.strip()}")
    say("removed the lock of the killed run")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ended-elsewhere", action="store_true", help="the run was killed on another machine")
    add_snakemake_arguments(parser)


def run(options: argparse.Namespace) -> None:
    words, own = snakemake_words(options.arguments), known_options(options.arguments)
    folder = own.directory.resolve()
    if os.name != "posix":
        refuse("This system has no locks that end with a process; see docs/reliability.md for the steps by hand.")
    if own.dry_run:
        become_snakemake(words)
    hold(folder)
    refuse_if_alive(folder)
    if not options.ended_elsewhere:
        refuse_if_elsewhere(folder)
    cancel_cluster_jobs(folder)
    end_orphans(folder)
    cancel_cluster_jobs(folder)  # one of the orphans may have submitted another
    remove_leftovers(folder)
    unlock(folder, words)
    if "--rerun-incomplete" not in words:
        words.append("--rerun-incomplete")
    say("starting snakemake")
    become_snakemake(words)
