"""Every job has a GPU, or a part of one, of its own."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import Timeout, UnixFileLock

from anchorscope.models.gpus import FOR_PARTS, PARTS, claim, gpu_count, parts_for

HOLD = """
import sys, time
from pathlib import Path
from anchorscope.models.gpus import claim
folder, count, seconds, parts = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
held = claim(["a", "b"], count, folder, parts)
start = time.monotonic()
print(*held, flush=True)
time.sleep(seconds)
print(start, time.monotonic(), flush=True)
"""


def job(folder: Path, count: int, seconds: float, parts: int = PARTS) -> subprocess.Popen:
    command = [sys.executable, "-c", HOLD, str(folder), str(count), str(seconds), str(parts)]
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


def test_no_gpu_has_more_jobs_at_once_than_it_has_parts_for(tmp_path):
    wanted = [(1, 1), (1, 2), (1, 1), (2, PARTS), (1, 1), (1, PARTS), (1, 2), (1, 1)]
    running = [(job(tmp_path, count, 0.4, parts), parts) for count, parts in wanted]
    spans = []
    for process, parts in running:
        gpus, times = process.communicate(timeout=600)[0].splitlines()
        spans += [(gpu, parts, *map(float, times.split())) for gpu in gpus.split()]
    assert len(spans) == sum(count for count, _ in wanted)
    for at in (start for *_, start, _ in spans):
        for gpu in ("0", "1"):
            assert sum(parts for one, parts, start, end in spans if one == gpu and start <= at < end) <= PARTS


def test_jobs_share_a_gpu_only_where_none_is_empty(tmp_path):
    held = [claim(["a", "b"], 1, tmp_path, parts) for parts in (1, 1, 2, 2)]
    assert [list(one) for one in held] == [[0], [1], [0], [1]]
    held.append(claim(["a", "b"], 2, tmp_path, 1))
    assert sorted(held[-1]) == [0, 1]
    waiting = job(tmp_path, 1, 0, parts=1)
    time.sleep(2)
    assert waiting.poll() is None, "both are full"
    held[1][1][0].release()
    assert waiting.communicate(timeout=600)[0].split()[0] == "1"


def test_a_job_that_wants_whole_gpus_is_not_passed_by_smaller_ones(tmp_path):
    held = claim(["a", "b"], 1, tmp_path, 1)
    first = job(tmp_path, 2, 0)
    while not any_waits(tmp_path):
        assert first.poll() is None
        time.sleep(0.05)
    second = job(tmp_path, 1, 0, parts=1)
    time.sleep(2)
    assert first.poll() is None
    assert second.poll() is None
    held[0][0].release()
    (_, end), (start, _) = (one.communicate(timeout=600)[0].splitlines()[1].split() for one in (first, second))
    assert float(end) <= float(start)


def any_waits(folder: Path) -> bool:
    """Whether a job has the turn to choose."""
    turn = UnixFileLock(folder / f"anchorscope-{os.getuid()}-turn.lock")
    try:
        with turn.acquire(blocking=False):
            return False
    except Timeout:
        return True


@pytest.mark.parametrize("size", [8e9, 24e9, 85e9, 150e9])
def test_a_job_gets_the_smallest_part_that_has_what_it_needs(size):
    for needed in (0.1e9, 1e9, 5e9, 11e9, 30e9, 80e9, 200e9, math.inf):
        parts = parts_for(needed, int(size))
        assert parts in (1, 2, 4)
        assert parts == 4 or needed <= parts / 4 * size, "no part of a GPU has more than its share"
        assert parts == 1 or needed > FOR_PARTS * parts / 8 * size, "half as much would not have been enough"


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
