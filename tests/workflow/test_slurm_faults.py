"""What a cluster does to a run, done to it by a real Slurm: every one ends in a finished run with the same bytes.

All faults are tried through both profiles, with and without accounting.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster_run import PROFILES, config, finish, settle, start
from faults import RESUME, tried
from slurm_cluster import NODES, Cluster, ask, missing, until
from small_run import write_config

SHARD = "results/activations/tiny/one/0000/resid.answer_last.parquet"
ANSWERS = "results/answers/tiny/one/0000.parquet"
OUTAGE = 30  # seconds

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[False, True], ids=["without accounting", "with accounting"])
def cluster(request) -> Iterator[Cluster]:
    if missing(accounting=request.param):
        pytest.skip(f"no Slurm: {missing(accounting=request.param)}")
    with Cluster(accounting=request.param) as cluster:
        yield cluster


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """The finished run, less the answers and activations of one shard: a single job makes them again."""
    shutil.copytree(finished, tmp_path / "run", symlinks=True)
    for name in (SHARD, ANSWERS):
        (tmp_path / "run" / name).unlink()
    write_config(tmp_path / "run", config("tiny"))
    return tmp_path / "run"


def running_job() -> tuple[str, str]:
    """The number and node of the one job, when its script has begun."""
    until(lambda: _scripts(), "a running job", 600)
    number, node = ask("squeue", "--noheader", "--states=RUNNING", "--format=%i %N").split()
    return number, node


def _scripts() -> list[int]:
    """The processes of jobs' own scripts; nothing else on this machine runs inside Slurm."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text(errors="replace").split("\0")
            inside = "SLURM_CLUSTER_NAME=toy" in (entry / "environ").read_text(errors="replace").split("\0")
        except OSError:
            continue
        if inside and len(words) > 1 and ".snakemake/scripts/" in words[1]:
            found.append(int(entry.name))
    return found


def cancel(cluster: Cluster) -> None:
    ask("scancel", running_job()[0])


def lose_node(cluster: Cluster) -> None:
    cluster.lose(running_job()[1])


def controller_away(cluster: Cluster) -> None:
    running_job()
    cluster.kill("controller", signal.SIGTERM)
    time.sleep(OUTAGE)
    cluster.start_controller()


def controller_killed(cluster: Cluster) -> None:
    """At once after it took the job, which it may then not remember."""
    running_job()
    cluster.kill("controller")
    cluster.start_controller()


def database_away(cluster: Cluster) -> None:
    running_job()
    cluster.kill("database")
    time.sleep(OUTAGE)
    cluster.start_database()


def never_end(cluster: Cluster) -> None:
    """Stop the job's script: only the time limit ends it."""
    running_job()
    for process in _scripts():
        os.kill(process, signal.SIGSTOP)


def nothing(cluster: Cluster) -> None:
    """What the job asks for is too little: that is fault enough."""


# What is done to the running job, and what the job asks for.
FAULTS: dict[str, tuple[Callable, dict]] = {
    "job cancelled by hand": (cancel, {}),
    "node lost": (lose_node, {}),
    "controller away for 30 s": (controller_away, {}),
    "controller killed": (controller_killed, {}),
    "database away for 30 s": (database_away, {}),
    "over its time limit": (never_end, {"runtime": "attempt"}),
    "over its memory": (nothing, {"mem_mb": "300 * attempt ** 3"}),
}
# Without accounting the plugin asks nobody when the controller is away, and forgets its jobs; it waits for a job that
# the controller has forgotten. That is what `sbatch` is for.
NOT_FOR = [("slurm", "controller away for 30 s"), ("slurm", "controller killed")]
# The plugin's jobs ask the controller when they begin their step, and fail when it is away then.
RESTARTS = {"controller away for 30 s": {0, 1}, "controller killed": {0, 1, 2}, "database away for 30 s": {0}}


@pytest.fixture
def chosen(request, cluster: Cluster) -> None:
    """Leave out what cannot be survived, or cannot happen."""
    names = (request.node.callspec.params["profile"], request.node.callspec.params.get("fault", "killed"))
    if names in NOT_FOR and (not cluster.accounting or names[1] == "controller killed"):
        pytest.skip("the plugin does not survive this; the profile sbatch does")
    if "database" in names[1] and not cluster.accounting:
        pytest.skip("there is no database without accounting")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_cluster_ends_in_a_finished_run(chosen, finished, folder, cluster, plugins, fault, profile):
    inflict, asked = FAULTS[fault]
    settle(folder, profile, dict.fromkeys(("answer", "choose", "extract"), asked))
    run = start(folder, profile, plugins, SHARD)
    record = tried(f"{fault}, profile {profile}, {'with' if cluster.accounting else 'without'} accounting", ["a job"])
    try:
        inflict(cluster)
        said = finish(run, folder)
    finally:
        run.kill()
        mend(cluster)
    assert (folder / SHARD).read_bytes() == (finished / SHARD).read_bytes()
    assert said.count("Trying to restart") in RESTARTS.get(fault, {1})
    record.survived = True


@pytest.mark.parametrize("profile", PROFILES)
def test_a_killed_run_is_resumed_and_its_jobs_are_cancelled(chosen, finished, folder, cluster, plugins, profile):
    settle(folder, profile)
    run = start(folder, profile, plugins, SHARD)
    record = tried(
        f"Snakemake killed, profile {profile}, {'with' if cluster.accounting else 'without'} accounting", ["a job"]
    )
    job, _ = running_job()
    run.kill()
    run.wait()
    said = finish(start(folder, profile, plugins, SHARD, program=[*RESUME, "--"]), folder)
    assert "cancelled 1 Slurm jobs" in said
    assert "JobState=CANCELLED" in ask("scontrol", "show", "job", job)
    assert (folder / SHARD).read_bytes() == (finished / SHARD).read_bytes()
    record.survived = True


def mend(cluster: Cluster) -> None:
    """Bring back what was taken away, whatever came of it."""
    ask("scancel", "--user=root")
    for node in NODES:
        if not (cluster.base / f"{node}.pid").exists():
            cluster.start_node(node)
    until(lambda: ask("sinfo", "-h", "-N", "-p", "cpu", "-o", "%T").split() == ["idle"] * len(NODES), "idle nodes")
