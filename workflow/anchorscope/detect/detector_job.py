"""From the activations of all datasets of a model to its detector and the card that describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anchorscope.detect.card import Quality, write_card
from anchorscope.detect.detector_file import About, write_detector, write_none
from anchorscope.detect.pooled import PooledReader
from anchorscope.detect.trained import Trained, train
from anchorscope.extract.axes import EXACT
from anchorscope.extract.store import ActivationReader, open_activations
from anchorscope.files.logs import log
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.models.manifest import Manifest
from anchorscope.probe.delta import States, in_chunks
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.probed import TooFew, enough
from anchorscope.probe.quality import auc, auc_with_interval, calibration_error
from anchorscope.probe.scores import each, joined

CLEAN = ("first", "clean")


@dataclass(frozen=True)
class CrossFitted:
    """Probes trained on all examples, and what probes that never saw an example say about it."""

    trained: Trained
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
    probed, skipped = _probed(readers, fitting)
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
    if not probed:
        write_none(target, " ".join(skipped.values()), made)
        write_card(card, described, None, [], made)
        return
    reader = PooledReader(probed)
    splits = {"folds": fitting.folds, "repeats": 1, "seed": fitting.seed}
    examples = enough(examples_of(reader.keys, **splits, where=f"{described.name} on all datasets"))
    fitted = cross_fit(reader, examples, fitting.on_card)
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
        layer=fitted.trained.best_layer,
        datasets=list(probed),
        examples=len(examples.ids),
        dtype=reader.dtype,
    )
    write_detector(target, fitted.trained, about, made)
    write_card(card, described, about, qualities(fitted, examples, reader.datasets), made)


def _probed(
    readers: Mapping[str, ActivationReader], fitting: Fitting
) -> tuple[dict[str, ActivationReader], dict[str, str]]:
    """The datasets with enough answers to probe, and why the others have too few."""
    probed, skipped = {}, {}
    for name, reader in readers.items():
        found = examples_of(reader.keys, folds=fitting.folds, repeats=1, seed=fitting.seed, where=name)
        if isinstance(found, TooFew):
            skipped[name] = found.why
            log.warning("left out: %s", found.why)
        else:
            probed[name] = reader
    return probed, skipped


def cross_fit(reader: PooledReader, examples: Examples, on_card: bool) -> CrossFitted:
    """Train on all examples, and once without each fold to score it; a few layers at a time."""
    folds = examples.splits[0].folds

    def train_on(device: torch.device, states: States, *_: object) -> tuple[list[Trained], np.ndarray]:
        there, fold_of = states[CLEAN].to(device), torch.from_numpy(folds).to(device)
        trained = train(there, torch.from_numpy(examples.hallucinated).to(device), fold_of)
        logits = torch.zeros(there.shape[:2], device=device)
        for fold, probes in enumerate(trained[:-1]):
            logits[:, fold_of == fold] = probes.logits(there[:, fold_of == fold])
        return each(trained, Tensor.cpu), logits.double().cpu().numpy()

    parts = [part for _, _, part in in_chunks(reader, [CLEAN], on_card, train_on)]
    *others, everyone = joined([trained for trained, _ in parts])
    logits = np.concatenate([some for _, some in parts])
    best = np.array([probes.best_layer for probes in others])[folds]  # [examples]
    return CrossFitted(everyone, logits, logits[best, np.arange(len(folds))])


def qualities(fitted: CrossFitted, examples: Examples, datasets: np.ndarray) -> list[Quality]:
    """How well the cross-fitted probes tell: over all examples, then on each dataset."""
    names = list(dict.fromkeys(datasets.tolist()))
    everyone = np.ones(len(datasets), bool)
    return [
        _quality(name, who, fitted, examples)
        for name, who in [("all", everyone), *((name, datasets == name) for name in names)]
    ]


def _quality(name: str, who: np.ndarray, fitted: CrossFitted, examples: Examples) -> Quality:
    logits, hallucinated = fitted.chosen[who], examples.hallucinated[who]
    clusters = [cluster for cluster, mine in zip(examples.clusters, who, strict=True) if mine]
    area = auc_with_interval(logits[None, None], hallucinated, clusters)
    return Quality(
        dataset=name,
        right=int((~hallucinated).sum()),
        hallucinated=int(hallucinated.sum()),
        auc=float(area["auc"][0]),
        auc_low=float(area["auc_low"][0]),
        auc_high=float(area["auc_high"][0]),
        calibration_error=float(calibration_error(logits, hallucinated)),
        best_layer=int(np.argmax(auc(fitted.logits[:, who], hallucinated))),
    )
