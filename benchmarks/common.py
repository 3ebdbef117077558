"""What the benchmarks share: the machine, its matmul rate, synthetic examples, tables and records."""

import argparse
import copy
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import nn
from transformers import Cache, PreTrainedModel

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "workflow"))

from anchorscope.engine.work import Variant  # noqa: E402
from anchorscope.extract.sequences import Workload  # noqa: E402
from anchorscope.models.loading import has_matrix_units, processor  # noqa: E402

TWO_PASSES = [("first", "clean"), ("first", "exact_question")]


def fast_dtype(asked: str, device: torch.device) -> torch.dtype:
    """The dtype that was asked for; `auto` is what the device multiplies fastest."""
    if asked != "auto":
        return getattr(torch, asked)
    return torch.bfloat16 if device.type == "cuda" or has_matrix_units() else torch.float32


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes, the device's part included."""
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def machine() -> dict[str, str]:
    return {
        "processor": f"{processor()}, {torch.get_num_threads()} threads",
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "command": f"python {' '.join(_without_record(sys.argv))}",
    }


def _without_record(words: list[str]) -> list[str]:
    """The command line without the file that its record goes to."""
    place = words.index("--record") if "--record" in words else len(words)
    return words[:place] + words[place + 2 :]


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second of one large matrix product on random numbers."""
    size = 8192 if device.type == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    for _ in range(3):
        left @ right
    times = [seconds(lambda: left @ right) for _ in range(10)]
    return 2 * size**3 / sorted(times)[len(times) // 2]


def operations_per_token(model: PreTrainedModel) -> int:
    """Multiplications and additions of the blocks' matrices, without attention's own products."""
    linear = (module for module in model.get_decoder().layers.modules() if isinstance(module, nn.Linear))
    return sum(2 * module.weight.numel() for module in linear)


def repeated(cache: Cache | None, rows: int) -> Cache | None:
    """A prefix's keys and values for each row of a batch, which adds its own to them."""
    mine = copy.deepcopy(cache)
    if mine is not None:
        mine.batch_repeat_interleave(rows)
    return mine


def synthetic_workload(
    count: int, prefix: int, suffix: int, passes: list[tuple[str, str]], positions: int = 3
) -> Workload:
    """Examples with the bundled TriviaQA set's lengths: question and answer of `suffix` tokens on average with a
    standard deviation of 4, the first exact question token after 1.7, and 9.2 of them."""
    draw = np.random.default_rng(0)
    starts = {name: draw.integers(1000, 40000, prefix) for name in dict.fromkeys(prompt for prompt, _ in passes)}
    sequences = []
    for _ in range(count):
        length = int(np.clip(round(draw.normal(suffix, 4)), suffix - 10, suffix + 16))
        first = int(draw.integers(0, 4))
        question = np.arange(length - 8)  # the answer and what stands between follow it
        later = question[first + 1 :]
        exact = np.append(first, draw.choice(later, min(round(9.2 / 24 * length) - 1, len(later)), replace=False))
        others = np.setdiff1d(question, exact)
        control = draw.choice(others, min(len(exact), len(others)), replace=False)
        cut, control = (sorted((prefix + tokens).tolist()) for tokens in (exact, control))
        cuts = {"clean": [], "exact_question": cut, "random_question": control}
        tail = draw.integers(1000, 40000, length)
        keep = [prefix + length - 2, prefix + length - 1, prefix + length - 6][:positions]
        ids = {name: np.concatenate([start, tail]) for name, start in starts.items()}
        sequences.append([Variant(ids[prompt], keep, cuts[intervention]) for prompt, intervention in passes])
    keys = [{"id": str(number), "right": True, "subject": None, "popularity": None} for number in range(count)]
    return Workload(keys, sequences, passes)


def arguments(**options: dict) -> argparse.Namespace:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, option in options.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **option)
    parser.add_argument("--record", type=Path, help="write the results to this JSON file")
    return parser.parse_args()


def report(rows: list[dict], about: dict, record: Path | None) -> None:
    """Print a table, and write it as JSON."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns] + [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    for name, value in about.items():
        print(f"{name}: {value}")
    if record:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps({**about, "results": rows}, indent=2) + "\n")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    return "" if value is None else str(value)
