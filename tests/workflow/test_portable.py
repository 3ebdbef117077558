"""Other processors and systems, simulated on this one."""

import ctypes
import os
import subprocess
import sys
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
import torch
from transformers import PreTrainedConfig

import as_other_machines
from anchorscope.commands import models as command
from anchorscope.engine.batches import run_batches
from anchorscope.files import atomic
from anchorscope.models import loading
from anchorscope.models.loading import choose_dtype, float32_rate, read_config
from anchorscope.probe.fitting import give_back_freed_blocks
from small_run import base_config, copy_project, save_model, snakemake, write_config, write_questions
from small_things import ROOT

# As they were seen; the first is that of Linux on x86, and really raised in test_engine.py.
NO_MEMORY = {
    "Linux": "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 4611686018427387904 bytes. Error code 12 (Cannot allocate memory)",
    "ARM and Windows": "[enforce fail at alloc_cpu.cpp:117] data. DefaultCPUAllocator: not enough memory: you tried to "
    "allocate 911360 bytes.",
    "MPS": "MPS backend out of memory (MPS allocated: 9.06 GB, other allocations: 1.02 MB, max allowed: 9.07 GB).",
    "CUDA, beside torch's allocator": "CUDA error: out of memory",
    "cuBLAS": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "C++": "std::bad_alloc",
    "C++ on Windows": "bad allocation",
    "oneDNN": "could not create a memory object",
}
NOT_OF_MEMORY = ["mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", "could not create a primitive"]


@pytest.mark.parametrize("words", NO_MEMORY.values(), ids=NO_MEMORY)
def test_a_lack_of_memory_halves_the_batch_however_it_is_worded(words):
    done = []

    def run(batch):
        if len(batch) > 2:
            raise RuntimeError(words)
        done.extend(batch)

    run_batches(run, [8] * 5, 64)
    assert sorted(done) == list(range(5))


@pytest.mark.parametrize("words", NOT_OF_MEMORY)
def test_another_error_is_raised_as_it_is(words):
    def run(batch):
        raise RuntimeError(words)

    with pytest.raises(RuntimeError) as raised:
        run_batches(run, [8] * 5, 64)
    assert str(raised.value) == words


X86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel\t\t: 143\nmodel name\t: Intel(R) Xeon(R)\n"
ARM = "processor\t: 0\nBogoMIPS\t: 2100.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"


@pytest.mark.parametrize(
    ("cpuinfo", "python", "expected"),
    [
        (X86, ("x86_64", "x86_64"), "Intel(R) Xeon(R)"),
        (ARM, ("", "aarch64"), "aarch64"),
        (POWER, ("ppc64le", "ppc64le"), "POWER9, altivec supported"),
        (None, ("arm", "arm64"), "arm"),  # macOS
        (None, ("", ""), "unknown"),
    ],
)
def test_the_processor_is_named_wherever_it_runs(cpuinfo, python, expected, tmp_path, monkeypatch):
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    for name, value in zip(("processor", "machine"), python, strict=True):
        monkeypatch.setattr(loading.platform, name, lambda value=value: value)
    assert loading.processor(tmp_path / "cpuinfo") == expected


@pytest.mark.parametrize(("asked", "dtype"), [(lambda: True, torch.bfloat16), (lambda: False, torch.float32)])
def test_auto_is_float32_on_a_processor_without_matrix_units(asked, dtype, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", asked, raising=False)
    assert choose_dtype("auto", torch.device("cpu"), PreTrainedConfig()).dtype == dtype


def test_auto_is_float32_where_torch_cannot_tell(monkeypatch):
    monkeypatch.delattr(torch.cpu, "_is_amx_tile_supported", raising=False)
    assert choose_dtype("auto", torch.device("cpu"), PreTrainedConfig()).dtype == torch.float32


# Multiprocessors, capability and clock in kHz as torch gives them, and the float32 rate that its maker publishes.
GPUS = {
    "H200": (132, (9, 0), 1_980_000, 67e12),
    "A100": (108, (8, 0), 1_410_000, 19.5e12),
    "V100": (80, (7, 0), 1_530_000, 15.7e12),
    "RTX 4090": (128, (8, 9), 2_520_000, 82.6e12),
}


@pytest.mark.parametrize(("count", "capability", "clock", "published"), GPUS.values(), ids=GPUS)
def test_a_gpus_float32_rate_is_that_which_its_maker_publishes(count, capability, clock, published):
    major, minor = capability
    gpu = SimpleNamespace(multi_processor_count=count, major=major, minor=minor, clock_rate=clock)
    assert float32_rate(gpu) == pytest.approx(published, rel=0.01)


def test_auto_is_float32_for_small_models_and_on_fast_gpus_and_says_why(monkeypatch):
    count, (major, minor), clock, _ = GPUS["H200"]
    gpu = SimpleNamespace(multi_processor_count=count, major=major, minor=minor, clock_rate=clock)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    shapes = {shape.stem: read_config(shape) for shape in (ROOT / "workflow/resources/shapes").glob("*.json")}
    found = {name: choose_dtype("auto", torch.device("cuda"), config) for name, config in shapes.items()}
    assert {name: found[name].dtype for name in ("llama-3.2-1b", "qwen3-8b")} == {
        "llama-3.2-1b": torch.float32,
        "qwen3-8b": torch.bfloat16,
    }
    assert "7.6 billion weights to multiply" in found["qwen3-8b"].why  # 8.2 less a table of 151,936 tokens × 4,096
    gpu.multi_processor_count = 10 * count
    assert choose_dtype("auto", torch.device("cuda"), shapes["qwen3-8b"]).dtype == torch.float32
    assert choose_dtype("bfloat16", torch.device("cuda"), shapes["llama-3.2-1b"]).dtype == torch.bfloat16


def test_without_glibc_its_memory_is_left_alone(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # another C library
    give_back_freed_blocks()

    def refuse(name):
        raise TypeError("argument of type 'NoneType' is not iterable")  # as Windows does

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monkeypatch.setattr(os, "name", "nt")
    give_back_freed_blocks()


def test_windows_is_not_asked_with_a_signal_whether_a_process_lives(monkeypatch):
    asked = []
    monkeypatch.setattr(os, "kill", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(os, "name", "nt")
    assert atomic._alive(4711)
    assert not asked


def test_without_unix_locks_the_workflow_starts_and_no_gpu_is_had(tmp_path):
    code = """
import runpy, sys
from pathlib import Path

sys.modules["fcntl"] = None  # as on Windows: its import fails
import anchorscope.models.loading
from anchorscope.models.gpus import claim, gpu_count

gpu_count()
try:
    claim(["a", "b"], 2, Path(sys.argv[1]))
except RuntimeError as error:
    assert "so jobs cannot share its GPUs" in str(error)
else:
    raise AssertionError("two jobs could have had one GPU")
sys.argv[1:] = ["resume", "--help"]
runpy.run_module("anchorscope", run_name="__main__")
"""
    words = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "anything that Snakemake takes" in done.stdout


@pytest.mark.slow
def test_a_run_answers_questions_and_keeps_states(tokenizer, tmp_path):
    """The beginning of a run; short, because it is tried with every locale, user and home. Here, others run it all."""
    save_model(copy_project(tmp_path) / "tiny-model", tokenizer, seed=0)
    write_questions(tmp_path / "one.jsonl", tokenizer, count=12)
    config = base_config()
    write_config(tmp_path, config | {"questions": 12, "datasets": {"one": config["datasets"]["one"]}})
    states = "results/activations/tiny/one/0000/resid.answer_last.parquet"
    done = snakemake(tmp_path, states)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = pq.read_table(tmp_path / "results/answers/tiny/one/0000.parquet")
    assert len(answers) == 12
    assert pq.read_metadata(tmp_path / states).num_rows == 2 * answers["right"].to_pylist().count(True) > 0


def test_the_extract_command_takes_the_cores_that_it_may_run_on(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    assert command.usable_cores() == 1
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert command.usable_cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert command.usable_cores() == 1


def test_what_runs_as_on_other_machines_exists():
    listed = (*as_other_machines.NUMBERS, *as_other_machines.FILES)
    for file, _, test in (name.partition("::") for name in listed):
        assert (ROOT / file).exists(), file
        assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
