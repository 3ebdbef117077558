"""Every job has a GPU of its own."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from anchorscope.models.gpus import claim, gpu_count

HOLD = """
import sys, time
from pathlib import Path
from anchorscope.models.gpus import claim
folder, count, seconds = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
held = claim(["a", "b"], count, folder)
start = time.monotonic()
print(*held, flush=True)
time.sleep(seconds)
print(start, time.monotonic(), flush=True)
"""


def job(folder: Path, count: int, seconds: float) -> subprocess.Popen:
    command = [sys.executable, "-c", HOLD, str(folder), str(count), str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_jobs_never_hold_one_gpu_at_once(tmp_path):
    running = [job(tmp_path, count, 0.4) for count in (1, 1, 2, 1, 2)]
    spans = []
    for process in running:
        gpus, times = process.communicate(timeout=600)[0].splitlines()
        spans += [(gpu, *map(float, times.split())) for gpu in gpus.split()]
    assert sorted(gpu for gpu, *_ in spans).count("0") + sorted(gpu for gpu, *_ in spans).count("1") == 7
    for number, (gpu, start, end) in enumerate(spans):
        for other, begin, finish in spans[number + 1 :]:
            assert gpu != other or end <= begin or finish <= start
    alone = [span for span in spans if any(a[0] != span[0] and a[1] < span[2] and span[1] < a[2] for a in spans)]
    assert alone, "both GPUs are used at once"


def test_a_killed_job_frees_its_gpu(tmp_path):
    holder = job(tmp_path, 2, 3600)
    assert holder.stdout.readline().split() == ["0", "1"]
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    start = time.monotonic()
    locks = claim(["a", "b"], 2, tmp_path)
    assert sorted(locks) == [0, 1]
    assert time.monotonic() - start < 600, "it did not wait until the job would have ended"


def test_too_few_gpus_are_one_sentence(tmp_path):
    with pytest.raises(RuntimeError, match="3 GPUs are needed to hold the model, and 2 can be used here"):
        claim(["a", "b"], 3, tmp_path)


@pytest.mark.parametrize(("visible", "count"), [("", 0), ("0", 1), ("2,3", 2), ("-1", 0), ("GPU-1a,GPU-2b", 2)])
def test_gpus_that_are_hidden_from_a_process_do_not_count(visible, count, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_count() == count
