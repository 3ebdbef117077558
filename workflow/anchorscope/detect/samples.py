"""Several answers to each question at temperature 1, from files to a file."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor

from anchorscope.answer.answers import MAX_NEW_TOKENS, ask_again, plan
from anchorscope.answer.donors import own_draw
from anchorscope.answer.prompts import ModelSettings, decode
from anchorscope.files.sealed_parquet import provenance, read_table, write_table
from anchorscope.models.loading import leave_gpus, load_fetched_tokenizer
from anchorscope.models.manifest import Manifest

NEEDED = ["id", "question", "spans"]
SCHEMA = pa.schema([("id", pa.string()), ("samples", pa.list_(pa.string()))])


@dataclass(frozen=True)
class SampleSettings(ModelSettings):
    """How samples are drawn for the chosen examples of a shard, under the first prompt."""

    samples: int  # of each example


def sample_file(chosen: Path | str, manifest: Path | str, target: Path | str, settings: SampleSettings) -> None:
    """Write samples of the chosen examples of a shard, each the first line of what the model says.

    Everything that needs no GPU is done before one is taken.
    """
    examples = read_table(chosen, NEEDED)
    ids = examples["id"].to_pylist()
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    (prompt,) = settings.prompts.built(tokenizer).values()
    asked = plan(tokenizer, prompt, examples.to_pylist())
    engine = settings.engine(described)
    made = settings.made("sample_answers", described, engine)
    said = ask_again(engine, asked, own_uniforms(ids, settings.samples))
    leave_gpus(engine.model)
    texts = [[decode(tokenizer, one.ids).split("\n", 1)[0].strip() for one in mine] for mine in said]
    write_table(target, pa.table([ids, texts], schema=SCHEMA), provenance(**made, samples=settings.samples))


def own_uniforms(ids: list[str], samples: int) -> Tensor:
    """Uniform numbers [examples, samples, tokens]: those of an example are drawn by its own seed.

    More samples have the same numbers as fewer, and others besides.
    """
    drawn = [own_draw("samples", name) for name in ids]
    numbers = [[[draw.random() for _ in range(MAX_NEW_TOKENS)] for _ in range(samples)] for draw in drawn]
    return torch.tensor(numbers, dtype=torch.float64)
