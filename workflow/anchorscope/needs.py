"""What a run of a model takes, from its config alone: memory, disk and time.

For four datasets of 4,000 questions each, all analysed, in bfloat16. docs/models.md says where the numbers come from.
"""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from transformers import PreTrainedConfig

from anchorscope.engine.door import GPU_TOKENS, KEPT_BYTES
from anchorscope.extract.axes import HEADLINE, PASSES, Grid
from anchorscope.extract.store import GROUP_BYTES, GROUP_EXAMPLES, example_bytes
from anchorscope.files.faults import check_file
from anchorscope.models.gpus import gpus
from anchorscope.models.loading import NEW_TOKENS, TOKENS_ANSWERED, TOKENS_EXTRACTED, read_config
from anchorscope.models.sizes import gpus_needed, parameters

QUESTIONS, DATASETS = 4000, 4
STAGES = 2  # stages that load the model: answer and extract
GPU_BYTES = 85e9  # of a GPU that is sold as one of 80 GB
COLUMNS = (
    *("model", "parameters", "weights", "GPU memory", "GPUs of 80 GB", "host memory"),
    *("activations per example", "at most on disk", "time"),
)

# All but the first were measured on one H200.
READ_PER_SECOND = 1.5e9  # bytes of weights, from a disk to the GPU
WRITTEN_PER_SECOND = 1.2e9  # bytes of activations
OPERATIONS_PER_SECOND = 4e14  # of matrix products, half of what the GPU can do at best
PROCESS_BYTES = 4e9  # of a job, besides the batches that it holds
COPIES = 4  # of a batch's activations on their way to the file; a gigabyte each
STEP_SECONDS = 0.01  # per new token for a whole batch, besides its matrix products


@dataclass(frozen=True)
class Needs:
    """What one model takes."""

    parameters: int
    weight_bytes: int  # on disk and on the GPU
    gpu_bytes: float  # the most that a job holds on the GPU
    host_bytes: float  # the most that it holds in the machine's memory
    example_bytes: int  # on disk, per analysed example
    answer_seconds: float  # per question
    extract_seconds: float  # per example
    load_seconds: float  # per job

    @property
    def activation_bytes(self) -> int:
        """Of all questions, if every answer is analysed."""
        return self.example_bytes * QUESTIONS * DATASETS


@dataclass(frozen=True)
class Machine:
    """What a machine has."""

    gpus: list[int]  # bytes of each GPU
    memory: int  # bytes
    disk: int  # bytes that are free where results would be written


def needs(config: PreTrainedConfig, dtype: torch.dtype = torch.bfloat16, grid: Grid = HEADLINE) -> Needs:
    """What the answer and extract stages of a model take on a GPU."""
    text = config.get_text_config()
    count = parameters(config)
    weights = count * dtype.itemsize
    kept = example_bytes(
        layers=text.num_hidden_layers, width=text.hidden_size, dtype=dtype, passes=len(PASSES), grid=grid
    )
    batch = min(KEPT_BYTES, GPU_TOKENS / (TOKENS_EXTRACTED / 2) * kept)
    states = GPU_TOKENS * (3 * text.intermediate_size + 2 * text.hidden_size) * dtype.itemsize
    matrices = count - text.vocab_size * text.hidden_size
    together = GPU_TOKENS / (TOKENS_ANSWERED + NEW_TOKENS)  # questions in a batch
    computing = 2 * matrices / OPERATIONS_PER_SECOND  # seconds per token
    return Needs(
        parameters=count,
        weight_bytes=weights,
        gpu_bytes=weights + states + 2 * batch,
        host_bytes=PROCESS_BYTES + COPIES * 2**30 + 2 * max(len(grid) * GROUP_BYTES, GROUP_EXAMPLES * kept),
        example_bytes=kept,
        answer_seconds=(TOKENS_ANSWERED + NEW_TOKENS) * computing + NEW_TOKENS * STEP_SECONDS / together,
        extract_seconds=max(kept / WRITTEN_PER_SECOND, TOKENS_EXTRACTED * computing),
        load_seconds=weights / READ_PER_SECOND,
    )


def line(name: str, some: Needs) -> str:
    """A row of the table in docs/models.md. Time is that of all datasets on one GPU or one set of GPUs."""
    computing = QUESTIONS * DATASETS * (some.answer_seconds + some.extract_seconds)
    hours = (computing + STAGES * DATASETS * some.load_seconds) / 3600  # with one job per dataset
    cells = [
        name,
        f"{some.parameters / 1e9:.2f} B",
        f"{some.weight_bytes / 1e9:.1f} GB",
        f"{some.gpu_bytes / 1e9:.0f} GB",
        str(gpus_needed(some.weight_bytes, int(GPU_BYTES))),
        f"{some.host_bytes / 1e9:.0f} GB",
        f"{some.example_bytes / 1e6:.1f} MB",
        f"{some.activation_bytes / 1e9:.0f} GB",
        f"{60 * hours:.0f} min",
    ]
    return f"| {' | '.join(cells)} |"


def lacks(some: Needs, machine: Machine) -> list[str]:
    """What a machine lacks for a model; empty if it has everything."""
    wanted = gpus_needed(some.weight_bytes, min(machine.gpus, default=int(GPU_BYTES)))
    said = []
    if not machine.gpus:
        said.append(f"a GPU with {math.ceil(some.gpu_bytes / 1e9)} GB" if wanted == 1 else f"{wanted} GPUs of 80 GB")
    elif wanted > len(machine.gpus):
        said.append(f"GPUs (it has {len(machine.gpus)} of {wanted} such)")
    for name, there, needed in (
        ("memory", machine.memory, some.host_bytes),
        ("free disk space", machine.disk, some.weight_bytes + some.activation_bytes),
    ):
        if there < needed:
            said.append(f"{name} (it has {there / 1e9:.0f} of {needed / 1e9:.0f} GB)")
    return said


def print_needs(configs: list[Path]) -> None:
    """Print a table, and a line on this machine for each config."""
    for file in configs:
        check_file(file, "name a model's config.json")
    found = {
        file.parent.name if file.name == "config.json" else file.stem: needs(read_config(file)) for file in configs
    }
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    print("\n".join(line(name, some) for name, some in found.items()), end="\n\n")
    machine = Machine(
        gpus=[gpu.total_memory for gpu in gpus()],
        memory=psutil.virtual_memory().total,
        disk=shutil.disk_usage(".").free,
    )
    for name, some in found.items():
        missing = lacks(some, machine)
        print(f"{name}: this machine {'lacks ' + ', '.join(missing) if missing else 'has what it takes'}.")
