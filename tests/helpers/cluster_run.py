"""The small run on a small site: its own edits of a shipped profile, submitted to a real Slurm."""

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import yaml
import yte

from small_run import SNAKEMAKE, base_config, write_config

PROFILES = ("slurm", "sbatch")
# The option for the shortest time between checks of a job's state.
CHECKS = {"slurm": "slurm-init-seconds-before-status-checks", "sbatch": "seconds-between-status-checks"}


def config(*models: str) -> dict:
    """The small run's config with models that ask for a GPU."""
    config = base_config()
    config["models"] = {
        name: {
            "title": name.title(),
            "path": f"{name}-model",
            "prompt": "few_shot",
            "dtype": "float32",
            "gpus": 1,
            "memory_gb": 2,
        }
        for name in models
    }
    return config


def settle(folder: Path, profile: str, resources: dict[str, dict] | None = None) -> None:
    """Edit a profile of the run in `folder` for this site: two cores per node, and its own resources by rule."""
    shared, own = folder / "workflow/profiles/cluster.yaml", folder / "workflow/profiles" / profile / "config.yaml"
    settings = yaml.safe_load(shared.read_text())
    # Sums of floating-point numbers depend on the number of threads: as many as in the local run.
    settings |= {"cores": 2, "set-threads": dict.fromkeys(settings["set-threads"], 1)}
    for rule, values in (resources or {}).items():
        settings["set-resources"][rule] = settings["set-resources"].get(rule, {}) | values
    shared.write_text(yaml.safe_dump(settings, sort_keys=False))
    own.write_text(yaml.safe_dump(yaml.safe_load(own.read_text()) | {CHECKS[profile]: 2}, sort_keys=False))


def read_profile(folder: Path, profile: str) -> dict:
    """The settings of a profile as a run in `folder` reads them."""
    with chdir(folder), open(f"workflow/profiles/{profile}/config.yaml", encoding="utf-8") as file:
        return yte.process_yaml(file, require_use_yte=True)


def install_plugins(folder: Path, root: Path) -> subprocess.CompletedProcess:
    """Install the executor plugins into their own folder: beside Snakemake they slow down all that has no Slurm."""
    lock = str(root / "requirements-cluster.lock")
    options = ["--quiet", "--no-deps", "--upgrade", "--target", str(folder), "--requirement", lock]
    return subprocess.run([sys.executable, "-m", "pip", "install", *options], capture_output=True, text=True)


def start(folder: Path, profile: str, plugins: Path, *targets: str, program: list[str] = SNAKEMAKE) -> subprocess.Popen:
    """Start a run whose jobs go to Slurm; what it says is added to `said.txt`."""
    command = [*program, *targets, "--workflow-profile", f"workflow/profiles/{profile}", "--configfile", "test.yaml"]
    paths = os.pathsep.join(filter(None, [str(plugins), os.getenv("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    with open(folder / "said.txt", "a", encoding="utf-8") as said:
        return subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, env=environment, start_new_session=True)


def finish(run: subprocess.Popen, folder: Path, seconds: int = 1800) -> str:
    """Wait for a run to end and return its output; fail if it does not end."""
    try:
        code = run.wait(seconds)
    except subprocess.TimeoutExpired:
        run.kill()
        code = f"no end within {seconds} s"
    said = (folder / "said.txt").read_text()
    assert code == 0, f"{code}\n{said[-6000:]}"
    return said


def new_run(finished: Path, target: Path, *models: str) -> Path:
    """A fresh folder with the project, models and questions of the finished run, and nothing computed."""
    shutil.copytree(finished, target, symlinks=True, ignore=shutil.ignore_patterns("results", ".snakemake"))
    write_config(target, config(*models))
    return target
