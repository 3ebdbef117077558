"""A whole run, as a user waits for it: stage by stage, how much of it a GPU was busy, and where the rest went.

Runs Snakemake on a fresh copy of this project, or in `--folder`, where a run can begin with what is there, and reads
what Snakemake itself measured of every job (results/benchmarks). A moment in which several stages ran counts for each
of them in equal parts, so that the column `waited` adds up to the whole run.
"""

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path

import polars as pl
from common import ROOT, arguments, machine, report

BETWEEN_LOOKS = 0.2  # seconds
COPIED = ["Snakefile", "config.yaml", "requirements.lock", "workflow", "scripts", "envs", "profiles"]


class GpuWatch(threading.Thread):
    """Asks the driver, again and again, for what share of the last moment a kernel ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.shares: list[float] = []

    def run(self) -> None:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while shutil.which("nvidia-smi") and not self.over.wait(BETWEEN_LOOKS):
            said = subprocess.run(command, capture_output=True, text=True).stdout.split()
            self.shares += [sum(map(float, said)) / len(said) / 100] if said else []

    def busy(self) -> float | None:
        return sum(self.shares) / len(self.shares) if self.shares else None


def copy_project(target: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


def run(folder: Path, cores: str, config: str | None, targets: list[str]) -> tuple[float, float, float | None]:
    """When the run began and how long it took, in seconds, and what share of it a GPU was busy."""
    command = [sys.executable, "-m", "snakemake", *targets, "--cores", cores]
    if config:
        command += ["--configfile", str(Path(config).resolve())]
    watch = GpuWatch()
    watch.start()
    began, start = time.time(), time.perf_counter()
    done = subprocess.run(command, cwd=folder)
    took = time.perf_counter() - start
    watch.over.set()
    watch.join()
    if done.returncode:
        sys.exit("The run failed; what it said stands above.")
    return began, took, watch.busy()


def jobs_of(folder: Path, began: float) -> pl.DataFrame:
    """Stage, start and end of every job of this run, in seconds after its beginning, and the memory it took."""
    rows = []
    for file in sorted((folder / "results/benchmarks").rglob("*.tsv")):
        end = file.stat().st_mtime - began
        if end > 0:
            measured = pl.read_csv(file, separator="\t", null_values=["-", "NA"], infer_schema=False).row(0, named=True)
            stage = file.relative_to(folder / "results/benchmarks").with_suffix("").parts[0]
            seconds, memory = float(measured["s"]), float(measured["max_rss"] or 0)
            rows.append({"stage": stage, "start": end - seconds, "end": end, "memory": memory})
    return pl.DataFrame(rows, schema={"stage": pl.String, "start": float, "end": float, "memory": float})


def waited(jobs: pl.DataFrame, took: float) -> dict[str, float]:
    """The part of the whole run that each stage kept the user waiting; what is left is Snakemake's own."""
    edges = sorted({0.0, took, *jobs["start"].clip(0, took), *jobs["end"].clip(0, took)})
    found = dict.fromkeys([*jobs["stage"].unique(maintain_order=True), "between jobs"], 0.0)
    for start, end in pairwise(edges):
        running = set(jobs.filter(pl.col("start") < end, pl.col("end") > start)["stage"]) or {"between jobs"}
        for stage in running:
            found[stage] += (end - start) / len(running)
    return found


def table(jobs: pl.DataFrame, took: float) -> list[dict]:
    rows = []
    for stage, seconds in waited(jobs, took).items():
        mine = jobs.filter(stage=stage)
        each = (mine["end"] - mine["start"]).to_list()
        rows.append(
            {
                "stage": stage,
                "jobs": len(mine) or None,
                "waited, s": round(seconds, 1),
                "of the run, %": round(100 * seconds / took, 1),
                "a job at most, s": round(max(each), 1) if each else None,
                "memory at most, MB": round(mine["memory"].max()) if each else None,
            }
        )
    return sorted(rows, key=lambda row: -row["waited, s"])


if __name__ == "__main__":
    options = arguments(
        folder={"type": Path, "help": "a copy of the project to run in; without it a fresh one"},
        config={"help": "a config in place of config.yaml"},
        cores={"default": "all"},
        targets={"nargs": "*", "default": [], "help": "what to make; without it everything"},
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or copy_project(Path(temporary))
        began, took, busy = run(folder, options.cores, options.config, options.targets)
        rows = table(jobs_of(folder, began), took)
        again = run(folder, options.cores, options.config, options.targets)[1]
    about = {"whole run, s": round(took, 1), "the same command again, s": round(again, 1)}
    about["GPU busy, % of the run"] = None if busy is None else round(100 * busy, 1)
    report(rows, {**about, **machine()}, options.record)
