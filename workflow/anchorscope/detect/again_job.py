"""A model runs its answers again, from files to files: asked about them, and with its attention shifted.

Both in one job: to load a model and to try it takes as long as to ask about many answers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel

from anchorscope.answer.prompts import ModelSettings, PromptSet
from anchorscope.detect.about_prompts import ASKED, OPTIONS, Asking, build_askings
from anchorscope.detect.ask_about import ask_about
from anchorscope.detect.asked_file import write_asked
from anchorscope.detect.names import GATES, SHIFTS, layer_read
from anchorscope.detect.reweight import MarkedExample, marked_examples, reweighted_states, workload_of
from anchorscope.detect.reweighted_file import write_reweighted
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.extract.job import NEEDED as EXTRACTED
from anchorscope.extract.sequences import Workload
from anchorscope.files.sealed_parquet import read_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest
from anchorscope.probe.probed import too_few

NEEDED = [*EXTRACTED, "answer"]


@dataclass(frozen=True)
class AgainSettings(ModelSettings):
    """How the chosen examples of a shard are run, under the first prompt."""

    headline: Headline  # what is read where attention is shifted
    about: PromptSet  # the parts of the prompts that ask about answers


class Work(NamedTuple):
    """All that is computed of some examples."""

    askings: list[Asking]
    workload: Workload  # the answered questions
    marked: list[MarkedExample]
    gates: np.ndarray | None  # [examples, gates]; None where nothing was probed, so that there is no gate


def run_again(
    chosen: Path | str,
    gates: Path | str,
    manifest: Path | str,
    asked: Path | str,
    reweighted: Path | str,
    settings: AgainSettings,
) -> None:
    """Write what the model says of its chosen answers in a shard, and its states under shifted attention.

    Without gates there are no such states. Everything that needs no card is done before one is taken.
    """
    described, few = Manifest.read(manifest), too_few(gates)
    examples = read_table(chosen, NEEDED)
    ids = examples["id"].to_pylist()
    made = settings.made("run_again", described)
    shift = {
        "headline": [settings.headline.component, settings.headline.position],
        "layer": layer_read(described.layers),
    }
    said = [torch.empty(0, len(OPTIONS[name])) for name in ASKED]
    states = torch.empty(1 + len(SHIFTS), 0, described.width)
    how: dict = {}
    if ids:
        work = _work(examples, None if few else gates, described, settings)
        model = load_model(described, settings.dtype, settings.threads)
        said, found, how = _run(model, work, settings)
        leave_cards(model)
        states = states if found is None else found
    write_asked(asked, ids, said, made | how | {"prompts": settings.about.as_json()})
    if few:
        shift |= few.metadata()
    write_reweighted(reweighted, [] if few else ids, states, made | how | shift)


def _work(examples: pa.Table, gates: Path | str | None, described: Manifest, settings: AgainSettings) -> Work:
    ids, questions, answers = (examples[name].to_pylist() for name in ("id", "question", "answer"))
    tokenizer, position = load_fetched_tokenizer(described), settings.headline.position
    workload = workload_of(tokenizer, settings.prompts.built(tokenizer)["first"], examples, position)
    return Work(
        askings=build_askings(tokenizer, settings.about, questions, answers),
        workload=workload,
        marked=marked_examples(workload, examples, position),
        gates=None if gates is None else gates_of(gates, ids),
    )


def _run(model: PreTrainedModel, work: Work, settings: AgainSettings) -> tuple[list[Tensor], Tensor | None, dict]:
    """Logits [examples, options] of each asking, states [1 + shifts, examples, width], and how they were computed."""
    engine, headline = Engine(model, settings.batch_tokens), settings.headline
    engine.prepare(work.workload.work(headline.grid(), engine.layers, EXACT))
    how = {"computed": computed_on(model), "path": engine.how()}
    said = ask_about(engine, work.askings)
    return said, None if work.gates is None else reweighted_states(engine, headline, work.marked, work.gates), how


def gates_of(file: Path | str, ids: list[str]) -> np.ndarray:
    """g of every gate for each of these examples, [examples, gates]."""
    table = read_table(file, ["id", *GATES])
    place = {name: row for row, name in enumerate(table["id"].to_pylist())}
    missing = [name for name in ids if name not in place]
    if missing:
        raise ValueError(f"{file} has no gates for example {missing[0]}; delete it, and run again.")
    found = np.stack([table[gate].to_numpy() for gate in GATES], axis=1)
    return found[[place[name] for name in ids]]
