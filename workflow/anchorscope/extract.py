"""Clean and knocked-out activations of every layer, from one forward pass an intervention.

The state at layer l depends on layers 0 ... l only. So one pass with the knockout in every layer
gives the right state for every l.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.attention import Prefix, compute_prefix, run_decoder
from anchorscope.batches import plan_batches
from anchorscope.knockout import CONTROL_REACH, INTERVENTIONS
from anchorscope.logs import progress
from anchorscope.prompts import Prompt, common_prefix, encode
from anchorscope.spans import Span
from anchorscope.store import COMPONENTS, PASSES, ActivationWriter


@dataclass(frozen=True)
class Row:
    """One sequence to run: prompt and answer tokens, those cut, and the positions to keep."""

    ids: list[int]
    cut: list[int]
    keep: list[int]


def balanced(answers: list[dict], seed: int) -> list[dict]:
    """Every example of the smaller class and an equal, seeded draw of the larger one."""
    right = [row for row in answers if row["right"]]
    wrong = [row for row in answers if not row["right"]]
    size = min(len(right), len(wrong))

    def draw(rows: list[dict]) -> list[dict]:
        return sorted(rows, key=lambda row: hashlib.sha256(f"{seed}\n{row['id']}".encode()).digest())[:size]

    return draw(right) + draw(wrong)


def analysable(answers: list[dict]) -> list[dict]:
    """Answers with a verdict; refusals stay out of the analysis."""
    return [row for row in answers if not row["refused"]]


def build_rows(
    tokenizer: PreTrainedTokenizerBase, prompts: dict[str, Prompt], examples: list[dict]
) -> tuple[list[list[Row]], dict[str, int]]:
    """For each example one row a pass, in the order of PASSES; and how many leading tokens a prompt's rows share."""
    rows: list[list[Row]] = [[] for _ in examples]
    shared = {}
    for name in dict.fromkeys(prompt for prompt, _ in PASSES):
        encoded = encode(tokenizer, prompts[name], [example["question"] for example in examples])
        shared[name] = common_prefix(encoded)
        for example, item, target in zip(examples, encoded, rows, strict=True):
            exact = item.tokens_of([Span(**span) for span in example["spans"]])
            final = example["answer_final"]
            ids = item.ids + example["generated_ids"][: max(final, example["exact_last"]) + 1]
            keep = [len(item.ids) + example["exact_last"], len(item.ids) + final]
            for _, intervention in (run for run in PASSES if run[0] == name):
                cut = [] if intervention == "clean" else INTERVENTIONS[intervention](item, exact, example["id"])
                target.append(Row(ids, cut, keep))
    return rows, shared


@torch.inference_mode()
def extract(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompts: dict[str, Prompt],
    examples: list[dict],
    writer: ActivationWriter,
    batch_tokens: int,
) -> None:
    """Run every pass of every example and stream the kept vectors to `writer`."""
    if not examples:
        return
    rows, shared = build_rows(tokenizer, prompts, examples)
    prefixes = {name: compute_prefix(model, rows[0][_first_pass(name)].ids[:count]) for name, count in shared.items()}
    lengths = [max(len(row.ids) - shared[run[0]] for row, run in zip(item, PASSES, strict=True)) for item in rows]
    plan = plan_batches(lengths, [len(PASSES)] * len(rows), batch_tokens)
    recorder = Recorder(model)
    for batch in progress(plan, len(rows), "extracting activations", weight=len):
        block = run_examples(model, recorder, prefixes, [rows[index] for index in batch])
        keys = [{name: examples[index][name] for name in ("id", "right", "subject", "popularity")} for index in batch]
        writer.add(keys, block)
    recorder.remove()


def _first_pass(prompt: str) -> int:
    return next(index for index, run in enumerate(PASSES) if run[0] == prompt)


def run_examples(
    model: PreTrainedModel, recorder: "Recorder", prefixes: dict[str, Prefix], rows: list[list[Row]]
) -> Tensor:
    """All passes of a few examples: [components, layers, passes, positions, examples, width] on the CPU."""
    groups: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for example, passes in enumerate(rows):
        for run, row in enumerate(passes):
            prompt = PASSES[run][0]
            start = _start(len(prefixes[prompt]), row)
            groups.setdefault((prompt, start), []).append((example, run))
    block = None
    for (prompt, start), members in groups.items():
        kept = run_rows(model, recorder, prefixes[prompt], start, [rows[example][run] for example, run in members])
        if block is None:
            shape = (*kept.shape[:2], len(PASSES), kept.shape[3], len(rows), kept.shape[4])
            block = torch.empty(shape, dtype=kept.dtype)
        for index, (example, run) in enumerate(members):
            block[:, :, run, :, example] = kept[:, :, index]
    return block


def _start(prefix: int, row: Row) -> int:
    """How many leading tokens of a row come from the shared prefix.

    A cut inside the prefix changes the prefix's own later tokens, so those are then computed too, by
    whole reaches, so that such rows still fall into few groups.
    """
    inside = max(0, prefix - min(row.cut, default=prefix))
    return max(0, prefix - -(-inside // CONTROL_REACH) * CONTROL_REACH)


def run_rows(model: PreTrainedModel, recorder: "Recorder", prefix: Prefix, start: int, rows: list[Row]) -> Tensor:
    """Kept vectors [components, layers, rows, positions, width] of rows on the prefix's first `start` tokens."""
    longest = max(len(row.ids) for row in rows)
    device = model.device
    # Pads stand to the right: causality keeps every real token from seeing them.
    tokens = torch.tensor([row.ids[start:] + [0] * (longest - len(row.ids)) for row in rows], device=device)
    keys = torch.arange(longest, device=device).expand(len(rows), -1)
    cut = torch.zeros(len(rows), longest, dtype=torch.bool)
    for index, row in enumerate(rows):
        cut[index, row.cut] = True
    keep = torch.tensor([row.keep for row in rows], device=device) - start
    with recorder.keeping(keep):
        run_decoder(model, tokens, keys[:, start:], keys, cut.to(device), prefix.cache(len(rows), start))
    return recorder.taken()


class Recorder:
    """Hooks on every block, its attention and its MLP that keep a few positions of each output."""

    def __init__(self, model: PreTrainedModel):
        self.layers = model.get_decoder().layers
        self.keep: Tensor | None = None  # [rows, positions]
        self.vectors: dict[tuple[str, int], Tensor] = {}
        self.handles = [
            module.register_forward_hook(self._hook(component, index))
            for index, layer in enumerate(self.layers)
            for component, module in zip(COMPONENTS, (layer, layer.self_attn, layer.mlp), strict=True)
        ]

    def _hook(self, component: str, layer: int):
        def hook(module, inputs, output):
            if self.keep is not None:
                states = output[0] if isinstance(output, tuple) else output  # [rows, tokens, width]
                rows = torch.arange(len(states), device=states.device)[:, None]
                self.vectors[component, layer] = states[rows, self.keep]  # [rows, positions, width]

        return hook

    @contextmanager
    def keeping(self, keep: Tensor) -> Iterator[None]:
        """Record the positions `keep` [rows, positions] of every forward pass inside the block."""
        self.keep, self.vectors = keep, {}
        try:
            yield
        finally:
            self.keep = None

    def taken(self) -> Tensor:
        """[components, layers, rows, positions, width] on the CPU."""
        return torch.stack(
            [
                torch.stack([self.vectors[component, layer] for layer in range(len(self.layers))])
                for component in COMPONENTS
            ]
        ).cpu()

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
