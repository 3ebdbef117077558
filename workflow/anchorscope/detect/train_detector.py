"""From the activations of all datasets of a model to its detector, and to the card that describes it.

The probes are as in the probe stage, but of all datasets of a model together; so they are fitted here. The card says
what they were trained on, how well they tell, and what they must not be used for.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.detector_file import About, DetectorProbes, write_detector
from anchorscope.extract.axes import CLEAN, EXACT
from anchorscope.extract.store import open_activations
from anchorscope.files.atomic import write_text
from anchorscope.files.identity import hash_of
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from, provenance
from anchorscope.models.manifest import Manifest
from anchorscope.probe.delta import States, in_chunks
from anchorscope.probe.examples import NOT_PROBED, Examples, TooFew, enough, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.pooled import PooledReader
from anchorscope.probe.quality import auc, auc_with_interval, calibration_error
from anchorscope.probe.scores import each, join_layers
from anchorscope.probe.strengths import VALIDATED, Fitted, cross_fitting, fit_training_sets

# The search for a strength ends earlier than in the probe stage, which probes fewer examples: weak penalties of many
# examples are most of the work, and no loss that has once risen by so much was seen to fall below the best again.
CLEARLY_WORSE = 1.03
CARD = """\
# A detector of hallucinated answers for {model.name}

One linear probe for each of the {model.layers} layers of {model.name} ({about.architecture}, width {model.width}). \
It reads `{about.component}` at `{about.position}` and gives the probability that an answer is hallucinated. \
`score` reads layer {about.layer}, which told best on folds inside the training data.

{warnings}## How well it tells

| dataset | right | hallucinated | AUC | 95 % interval | calibration error | best layer |
|---|---|---|---|---|---|---|
{qualities}

Every example was scored by probes that never saw it, nor another question about its subject; the layer was chosen \
without it, too. AUC has a 95 % interval by DeLong, questions about one subject counted together. The best layer is \
the one with the highest such AUC on these examples, which is why `score` does not go by it.

## What it was trained on

{about.examples} questions of {origins}, each with the greedy answer of {about.model} under the `{about.style}` \
prompt. An answer is hallucinated where no accepted answer stands in it. Refusals were left out. The penalty of each \
layer's probe was chosen on inner folds.

{skipped}## What it must not be used for

- Another model, another tokenizer or another prompt than these: the states would be others.
- A rate of hallucinations: a probability supposes that half of the answers are hallucinated, as in training.
- A verdict on its own. It ranks answers; it does not know whether one is true.
- Text that the model did not write: it can be scored, but how well was not measured. The same holds for sampled
  answers, long answers and other kinds of questions.

## What fixes it

| what | fingerprint or version |
|---|---|
{fixed}
"""
RANDOM = "**The weights of this model are random. What the detector says means nothing.**\n\n"
BUNDLED = (
    "**{}: questions that come with Anchorscope, chosen so that SmolLM2-135M is right on about half. They show that "
    "the detector works, not how well it does on yours.**\n\n"
)


@dataclass(frozen=True)
class CrossFitted:
    """Probes trained on all examples, and what probes that never saw an example say about it."""

    probes: DetectorProbes
    logits: np.ndarray  # [layers, examples]
    chosen: np.ndarray  # [examples], in the layer that tells best without the example's fold


def train_detector(
    activations: Mapping[str, Sequence[Path | str]],
    manifest: Path | str,
    target: Path | str,
    card: Path | str,
    *,
    sources: dict[str, str],
    fitting: Fitting,
) -> None:
    """Write a model's detector and its card; `activations` are the headline's files of each dataset.

    `sources` say where each dataset comes from, as in the config. Where no dataset has enough answers, both files say
    why there is no detector.
    """
    described = Manifest.read(manifest)
    readers = {name: open_activations(files, fitting.headline.grid(), [EXACT]) for name, files in activations.items()}
    splits = {"folds": fitting.folds, "repeats": 1, "seed": fitting.seed}
    found = {name: examples_of(reader.keys, **splits, where=name) for name, reader in readers.items()}
    skipped = {name: few.why for name, few in found.items() if isinstance(few, TooFew)}
    for why in skipped.values():
        log.warning("left out: %s", why)
    prompts = made_from(next(iter(activations.values()))[0])["prompts"]
    made = provenance(
        stage="train_detector",
        model=described.as_json(),
        prompts=prompts,
        sources=sources,
        folds=fitting.folds,
        seed=fitting.seed,
        skipped=skipped,
        code=fitting.code,
    )
    if len(skipped) == len(readers):
        write_detector(target, None, {NOT_PROBED: " ".join(skipped.values())}, made)
        write_text(card, f"# No detector for {described.name}\n\n{left_out(skipped)}\n")
        return
    reader = PooledReader({name: reader for name, reader in readers.items() if name not in skipped})
    examples = enough(examples_of(reader.keys, **splits, where=f"{described.name} on all datasets"))
    fitted = cross_fit(reader, examples, fitting.on_gpu)
    about = About(
        model=described.name,
        weights=described.weights,
        revision=described.revision,
        architecture=described.architecture,
        tokenizer=described.tokenizer,
        style=prompts["style"],
        prompt=prompts["texts"]["first"],
        component=fitting.headline.component,
        position=fitting.headline.position,
        layer=fitted.probes.best_layer,
        datasets=[name for name in readers if name not in skipped],
        examples=len(examples.ids),
        dtype=reader.dtype,
    )
    write_detector(target, fitted.probes, about, made)
    write_text(
        card, card_of(described, about, qualities(fitted, examples, reader.datasets), json.loads(made["anchorscope"]))
    )


def cross_fit(reader: PooledReader, examples: Examples, on_gpu: bool) -> CrossFitted:
    """Train on all examples, and once without each fold to score it; a few layers at a time."""
    folds = examples.splits[0].folds

    def train_on(device: torch.device, states: States, *_: object) -> tuple[list[DetectorProbes], np.ndarray]:
        there, fold_of = states[CLEAN].to(device), torch.from_numpy(folds).to(device)
        found = train(there, torch.from_numpy(examples.hallucinated).to(device), fold_of)
        logits = torch.zeros(there.shape[:2], device=device)
        for fold, probes in enumerate(found[:-1]):
            logits[:, fold_of == fold] = probes.logits(there[:, fold_of == fold])
        return each(found, Tensor.cpu), logits.double().cpu().numpy()

    parts = [part for _, _, part in in_chunks(reader, [CLEAN], on_gpu, train_on)]
    *others, everyone = join_layers([found for found, _ in parts])
    logits = np.concatenate([some for _, some in parts])
    best = np.array([probes.best_layer for probes in others])[folds]  # [examples]
    return CrossFitted(everyone, logits, logits[best, np.arange(len(folds))])


def train(states: Tensor, hallucinated: Tensor, folds: Tensor) -> list[DetectorProbes]:
    """Probes of all layers that saw every example but those of one fold, for each fold; behind them, of all examples.

    From states [layers, examples, width]; the others are [examples]. Strengths are chosen as the probe stage chooses
    them. So probes without a fold are those that score it there, but for rounding: these are fitted in double
    precision, because in single precision P hangs in its fifth decimal on what else is fitted at the same time.
    """
    clean, training_sets = states.float(), cross_fitting(folds).with_everyone()
    fitted = fit_training_sets(clean, hallucinated.float(), training_sets, CLEARLY_WORSE, dtype=torch.float64)
    return [_standardised(fitted, number, clean[:, who].double()) for number, who in enumerate(training_sets.train)]


def _standardised(fitted: Fitted, number: int, seen: Tensor) -> DetectorProbes:
    """One of the fitted probes of each layer in units of the states that it saw, [layers, examples, width]."""
    variance, mean = torch.var_mean(seen, dim=1, correction=0)
    scale = torch.where(variance > 0, variance.sqrt(), 1.0)
    weight, bias = fitted.probes.weight[:, number], fitted.probes.bias[:, number]
    found = {"weight": weight * scale, "mean": mean, "scale": scale, "bias": bias + (weight * mean).sum(-1)}
    return DetectorProbes(
        **{name: values.float() for name, values in found.items()},
        strength=fitted.strengths[:, number],
        inner_loss=fitted.losses[:, number] / VALIDATED,
    )


def qualities(fitted: CrossFitted, examples: Examples, datasets: np.ndarray) -> list[str]:
    """How well the cross-fitted probes tell, over all examples and on each dataset: rows of the card's table."""
    names = dict.fromkeys(datasets.tolist())
    rows = []
    for name, who in [("all", np.ones(len(datasets), bool)), *((name, datasets == name) for name in names)]:
        logits, hallucinated = fitted.chosen[who], examples.hallucinated[who]
        area = auc_with_interval(logits[None, None], hallucinated, list(compress(examples.clusters, who)))
        (found,), (low,), (high,) = (area[end] for end in ("auc", "auc_low", "auc_high"))
        best = np.argmax(auc(fitted.logits[:, who], hallucinated))
        rows.append(
            f"| {name} | {(~hallucinated).sum()} | {hallucinated.sum()} | {found:.3f} | {low:.3f} to {high:.3f} "
            f"| {calibration_error(logits, hallucinated):.3f} | {best} |"
        )
    return rows


def left_out(skipped: Mapping[str, str]) -> str:
    """Which datasets were left out, and why."""
    return "\n".join(f"Left out: {reason}" for reason in skipped.values())


def card_of(model: Manifest, about: About, qualities: Sequence[str], made: Mapping) -> str:
    """The card as Markdown. `made` is what the detector was made from."""
    sources, skipped = made["sources"], left_out(made["skipped"])
    bundled = ", ".join(name for name in about.datasets if sources[name] == "bundled")
    prompt = hash_of([about.style, about.prompt])
    fixed = {
        "weights": f"{about.weights}, {about.revision}",
        "tokenizer": about.tokenizer,
        "prompt": f"{about.style}, {prompt}",
        "folds, seed": f"{made['folds']}, {made['seed']}",
        "code": made["code"],
        **made["versions"],
    }
    return CARD.format(
        model=model,
        about=about,
        warnings=RANDOM * (model.weights == "random") + (BUNDLED.format(bundled) if bundled else ""),
        qualities="\n".join(qualities),
        origins=", ".join(f"{name} ({sources[name]})" for name in about.datasets),
        skipped=f"{skipped}\n\n" if skipped else "",
        fixed="\n".join(f"| {name} | {value} |" for name, value in fixed.items()),
    )
