"""Go on with a run that was killed: `python workflow/resume.py`, then whatever `snakemake` was given.

Refuses while that run may still be alive. Ends the jobs that it left, here and on a Slurm cluster, removes its lock,
and becomes `snakemake`. Finished files are kept. Harmless where nothing was killed: then it only starts `snakemake`.
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

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
SECONDS_TO_END = 5
SECONDS_TO_CANCEL = 300
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def say(text: str) -> None:
    print(f"resume: {text}", file=sys.stderr, flush=True)


def refuse(text: str) -> NoReturn:
    sys.exit(f"resume: {text}")


def processes(folder: Path) -> dict[int, list[str]]:
    """The command line of every other process of this machine that works in `folder`."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if int(entry.name) != os.getpid() and os.readlink(entry / "cwd") == str(folder):
                found[int(entry.name)] = (entry / "cmdline").read_text(errors="replace").split("\0")
        except OSError:  # it has ended, or belongs to somebody else
            continue
    return found


def runs_snakemake(command: list[str]) -> bool:
    """Whether this is `snakemake` or `python -m snakemake`."""
    return Path(command[0]).name.startswith("python") and "snakemake" in [Path(word).name for word in command[1:4]]


def is_run(command: list[str]) -> bool:
    """Whether this is a Snakemake that plans and starts jobs; one that only does a single job is told its mode."""
    return runs_snakemake(command) and "--mode" not in command


def is_job(command: list[str]) -> bool:
    """Whether this is a job of Snakemake: a copy of a script, the shell around it, a Snakemake for one job, or what
    still tries to submit one."""
    if runs_snakemake(command):
        return not is_run(command)
    shell = Path(command[0]).name.startswith(("python", "bash", "sh"))
    return shell and any(".snakemake/scripts/" in word or ".snakemake/tmp." in word for word in command)


def hold(folder: Path) -> None:
    """Keep any second resume out, from here to the end of the Snakemake that this process becomes."""
    import fcntl  # not on Windows, which has no /proc either and was told so

    (folder / ".snakemake").mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".snakemake" / "resume.lock", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(lock, True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        refuse(f"{folder} is being resumed already, or a resumed run still works in it; wait until that has ended.")
    except OSError:
        say("this file system has no locks: make sure yourself that nobody else resumes this run now")


def refuse_if_alive(folder: Path) -> None:
    for process, command in processes(folder).items():
        if is_run(command):
            refuse(f"Snakemake still works in {folder} as process {process}; wait until it has ended, or end it first.")


def logs(folder: Path) -> list[str]:
    """What the Snakemakes of this folder wrote, newest first."""
    files = sorted((folder / ".snakemake" / "log").glob("*.snakemake.log"), reverse=True)
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def is_locked(folder: Path) -> bool:
    return any((folder / ".snakemake" / "locks").glob("*.lock"))


def host_of_last_run(folder: Path) -> str | None:
    """Where the run was started that locked this folder last; attempts that found it locked do not count."""
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
    """Slurm's ids of all jobs of runs in `folder`, without the job that this is.

    The profile `sbatch` calls its jobs `anchorscope`, the Slurm plugin calls them after the run, a random number.
    """
    question = ["squeue", "--all", "--noheader", "--array", "--format", "%A|%i|%j|%Z"]
    asked = subprocess.run(question, capture_output=True, text=True)
    if asked.returncode:
        refuse(f"squeue does not say which jobs still run; try again when it does. {asked.stderr.strip()}")
    found = []
    for line in asked.stdout.splitlines():
        number, job, name, workdir = line.split("|", 3)
        named = name == "anchorscope" or UUID.search(name)
        if named and os.path.realpath(workdir) == str(folder) and number != os.getenv("SLURM_JOB_ID"):
            found.append(job)
    return found


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
    # A job that has ended by itself meanwhile makes scancel complain; the queue tells what matters.
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
    """Remove what killed jobs left half written, on whatever machine; nobody writes any more."""
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


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__, usage="%(prog)s [snakemake arguments]")
    parser.add_argument("--ended-elsewhere", action="store_true", help="the run was killed on another machine")
    parser.add_argument("--directory", "-d", type=Path, default=Path(), help="as for snakemake: where the run works")
    parser.add_argument("--dry-run", "--dryrun", "-n", action="store_true", help="only show what would be run")
    own, _ = parser.parse_known_args()
    arguments = [word for word in sys.argv[1:] if word != "--ended-elsewhere"]
    folder = own.directory.resolve()
    if not Path("/proc/self/cwd").exists():
        refuse("There is no /proc here to look for living runs in; see docs/reliability.md for the steps by hand.")
    if own.dry_run:
        os.execv(sys.executable, [*SNAKEMAKE, *arguments])
    hold(folder)
    refuse_if_alive(folder)
    if not own.ended_elsewhere:
        refuse_if_elsewhere(folder)
    cancel_cluster_jobs(folder)
    end_orphans(folder)
    cancel_cluster_jobs(folder)  # one of the orphans may have submitted another
    remove_leftovers(folder)
    unlock(folder, arguments)
    if "--rerun-incomplete" not in arguments:
        arguments.append("--rerun-incomplete")
    say("starting snakemake")
    os.execv(sys.executable, [*SNAKEMAKE, *arguments])


if __name__ == "__main__":
    main()
