"""The small run submitted to a real Slurm: which jobs it sends, what they hold, and that the results are the same."""

import itertools
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yte

from cluster_run import PROFILES, config, finish, new_run, read_profile, settle, start
from slurm_cluster import Cluster, ask, missing, until
from small_run import save_model, write_config
from small_things import ROOT

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no Slurm: {missing()}")
NOT_COMPARED = ("logs", "benchmarks", "models")  # they say when, how fast and on which paths


@pytest.fixture(scope="module")
def cluster():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def submitted(finished, cluster, plugins, tmp_path_factory) -> Path:
    """The whole small run through the profile `slurm`."""
    folder = new_run(finished, tmp_path_factory.mktemp("slurm") / "run", "tiny")
    settle(folder, "slurm")
    finish(start(folder, "slurm", plugins), folder)
    return folder


@pytest.fixture(scope="module")
def grown(submitted, cluster, plugins, tokenizer) -> str:
    """What is said when a second model is added to it, through the profile `sbatch`."""
    save_model(submitted / "other-model", tokenizer, seed=1)
    write_config(submitted, config("tiny", "other"))
    settle(submitted, "sbatch")
    before = (submitted / "said.txt").read_text()
    return finish(start(submitted, "sbatch", plugins), submitted)[len(before) :]


def results_of(folder: Path) -> dict[str, bytes]:
    files = [path for path in (folder / "results").rglob("*") if path.is_file() and not path.name.startswith(".")]
    names = {path: path.relative_to(folder / "results") for path in files}
    return {str(name): path.read_bytes() for path, name in names.items() if name.parts[0] not in NOT_COMPARED}


@pytest.mark.slow
def test_a_submitted_run_gives_the_bytes_of_a_local_one(finished, submitted):
    here, there = results_of(finished), results_of(submitted)
    assert set(here) == set(there)
    assert len(here) > 40
    assert [name for name in here if here[name] != there[name]] == []


@pytest.mark.slow
def test_small_stages_share_a_job(submitted):
    """Questions by dataset, the model, answers with activations by shard, probes with estimates by dataset, and one job
    for all that is made of all."""
    said = (submitted / "said.txt").read_text()
    kinds = Counter(re.findall(r"slurm_logs/(?:group|rule)_([a-z]+)", said))
    assert kinds == {"questions": 2, "fetch": 1, "model": 4, "probes": 2, "tables": 1}


@pytest.mark.slow
def test_only_jobs_that_run_a_model_hold_a_gpu_and_never_two_the_same(submitted, grown, cluster):
    held = cluster.held()
    assert {job.partition for job in held} == {"cpu", "gpu"}
    assert all(len(job.gpus) == (job.partition == "gpu") for job in held)
    assert len([job for job in held if job.gpus]) == 2 * 4
    for one, other in itertools.combinations(held, 2):
        if one.node == other.node and one.start < other.end and other.start < one.end:
            assert not one.gpus & other.gpus, (one, other)


@pytest.mark.slow
def test_adding_a_model_submits_only_its_jobs(grown):
    numbers = re.findall(r"external jobid '(\d+)'", grown)
    assert len(numbers) == 1 + 4 + 2 + 1  # its files, its shards, its probes, and the tables
    assert set(re.findall(r"model=(\w+)", grown)) == {"other"}
    for number in numbers:
        assert "JobState=COMPLETED" in ask("scontrol", "show", "job", number)


@pytest.mark.parametrize("profile", PROFILES)
def test_gpus_of_one_job_are_in_one_machine(cluster, profile):
    """Slurm may take them from several nodes, unless it is told not to."""
    asked = read_profile(ROOT, profile)
    assert asked["default-resources"]["nodes"] == 1
    assert profile == "slurm" or "--nodes=1 " in asked["cluster-generic-submit-cmd"]
    wrap = ["--wrap", "true", "--test-only", "--mem=100", "--partition=gpu"]
    refused = subprocess.run(["sbatch", "--gpus=3", "--nodes=1", *wrap], capture_output=True, text=True)
    assert refused.returncode != 0
    assert subprocess.run(["sbatch", "--gpus=3", *wrap], capture_output=True).returncode == 0


@pytest.mark.slow
def test_the_status_of_a_job_is_told_and_one_that_can_never_start_is_cancelled(cluster, tmp_path):
    def submit(*options: str) -> str:
        return ask("sbatch", "--parsable", "--mem=100", f"--output={tmp_path}/%j", *options).strip()

    def status(job: str) -> str:
        return ask(str(ROOT / "workflow/profiles/sbatch/status.sh"), job).strip()

    ended, failed, cancelled = submit("--wrap=true"), submit("--wrap=false"), submit("--wrap=sleep 99", "--hold")
    too_long = submit("--wrap=true", "--time=9-00")
    assert status(cancelled) == "running"
    ask("scancel", cancelled)
    until(lambda: status(ended) == "success", "the end of a job")
    until(lambda: status(failed) == "failed", "the end of a job")
    until(lambda: status(too_long) == "failed", "a job that cannot start")
    assert status(cancelled) == "failed"
    assert "JobState=CANCELLED" in ask("scontrol", "show", "job", too_long)
    assert status("999999") == "failed"


def test_every_profile_reruns_for_the_same_reasons():
    common = ("rerun-triggers", "rerun-incomplete", "keep-going", "printshellcmds")
    profiles = [read_profile(ROOT, name) for name in ("default", *PROFILES)]
    assert len({str([profile[key] for key in common]) for profile in profiles}) == 1


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_read_wherever_the_command_is_given(profile, tmp_path, monkeypatch):
    named = ROOT / "workflow/profiles" / profile
    expected = read_profile(ROOT, profile)
    monkeypatch.chdir(tmp_path)
    for words in (["--workflow-profile", str(named)], [f"--workflow-profile={named}"]):
        monkeypatch.setattr(sys, "argv", ["snakemake", *words])
        with open(named / "config.yaml", encoding="utf-8") as file:
            assert yte.process_yaml(file, require_use_yte=True) == expected


def test_the_profiles_of_a_cluster_differ_only_in_how_they_submit():
    slurm, sbatch = (read_profile(ROOT, name) for name in PROFILES)
    differ = [key for key in {*slurm, *sbatch} if slurm.get(key) != sbatch.get(key)]
    own = ("executor", "slurm-", "cluster-generic-", "seconds-between-status-checks")
    assert [key for key in differ if not key.startswith(own)] == []


def test_the_smallest_run_is_submitted_and_gives_the_bytes_of_a_local_one(finished, cluster, plugins, tmp_path):
    """One shard of one dataset, from nothing to what is chosen of it; tests of the whole run submit what follows.

    The last one here: others count all jobs of the cluster.
    """
    folder = new_run(finished, tmp_path / "run", "tiny")
    small = config("tiny")
    small |= {"questions": small["shard_size"], "datasets": {"one": small["datasets"]["one"]}}
    write_config(folder, small)
    settle(folder, "slurm")
    names = ("answers/tiny/one/0000.parquet", "chosen/tiny/one/0000.parquet")
    said = finish(start(folder, "slurm", plugins, f"results/{names[-1]}"), folder)
    kinds = Counter(re.findall(r"slurm_logs/(?:group|rule)_([a-z]+)", said))
    assert kinds == {"questions": 1, "fetch": 1, "model": 1}
    numbers = set(re.findall(r"SLURM jobid '?(\d+)", said))
    held = [job for job in cluster.held() if job.job in numbers]
    assert sorted((job.partition, len(job.gpus)) for job in held) == [("cpu", 0)] * 2 + [("gpu", 1)]
    for name in names:
        assert (folder / "results" / name).read_bytes() == (finished / "results" / name).read_bytes(), name
