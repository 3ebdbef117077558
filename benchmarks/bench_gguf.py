"""The conversion of a GGUF file, side by side with what transformers does alone.

(a) alone      transformers reads the file and saves the model and its tokenizer
(b) converted  the same with the workflow's reader, its threads and smaller files

Both leave the same weights, which is checked, and hash what they wrote, as the workflow does. Each is measured several
times in turn, and the quickest counts. Processor seconds add up all threads, and depend less than the clock on what
else the machine does.
"""

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from common import arguments, machine, report
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from anchorscope.files.identity import package_file
from anchorscope.models.fetch import SPARE_TOKENIZER
from anchorscope.models.gguf import convert_gguf
from anchorscope.models.manifest import revision_of


def alone(source: Path, target: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    )
    model.save_pretrained(target)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)


def spent(work: Callable[[], object], folder: Path) -> tuple[float, float]:
    """The seconds and processor seconds that `work` and the hash of what it wrote take."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    revision_of(folder, {"path": str(folder)})
    return time.perf_counter() - clock, time.process_time() - processor


def check_equal(folder: Path, other: Path) -> int:
    """How many numbers two folders' weights have, if all bits are the same."""
    places = [
        {name: file for file in one.glob("*.safetensors") for name in safe_open(file, "pt").keys()}  # noqa: SIM118
        for one in (folder, other)
    ]
    assert places[0].keys() == places[1].keys()
    count = 0
    for name in places[0]:
        mine, theirs = (safe_open(of[name], "pt").get_tensor(name) for of in places)
        assert torch.equal(mine.view(torch.int32), theirs.view(torch.int32)), name
        count += mine.numel()
    return count


def main() -> None:
    options = arguments(
        file={"type": Path, "help": "a GGUF file; without it, the default model's"},
        threads={"type": int, "default": 2},
        repeats={"type": int, "default": 2},
    )
    source = options.file or package_file(*SPARE_TOKENIZER)
    times: dict[str, list[tuple[float, float]]] = {"alone": [], "converted": []}
    weights = 0
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            plain, ours = Path(folder, "plain"), Path(folder, "ours")
            times["alone"].append(spent(lambda: alone(source, plain), plain))  # noqa: B023
            convert = partial(convert_gguf, source, ours, options.threads, torch.float32)
            times["converted"].append(spent(convert, ours))
            weights = check_equal(plain, ours)
    rows = [
        {"way": way, "s": min(clock for clock, _ in each), "processor s": min(cpu for _, cpu in each)}
        for way, each in times.items()
    ]
    report(rows, {"file": source.name, "weights": weights, **machine()}, options.record)


if __name__ == "__main__":
    main()
