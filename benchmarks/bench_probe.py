"""All probes at once against a loop over layers and folds with scikit-learn.

Made-up activations in bfloat16: a few strong directions, a signal in ten of them, noise. Two jobs, each done by both on
the same folds and the same strengths of penalty:

  fit      one probe per layer and fold, strengths given
  search   first find the strength of every layer and fold on inner folds, from all of the same list

scikit-learn (L-BFGS, float64, tolerance 1e-6) gets only `--layers-of-theirs` of the layers for the longer jobs; ratios
compare times per layer. `error` is the largest difference between a held-out probability of the first layer and that
of scikit-learn with a tolerance of 1e-9. In float32 scikit-learn is not faster, and its error is ten times as large,
whatever its tolerance. `memory` is the peak of the process during the search, above what it held before the
activations, as a multiple of the activations; it is measured on Linux only.
"""

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, machine, report
from sklearn.linear_model import LogisticRegression

from anchorscope.probe.delta import CHUNK_BYTES
from anchorscope.probe.fitting import give_back_freed_blocks
from anchorscope.probe.logistic import fit
from anchorscope.probe.strengths import STRENGTHS, choose_strengths, cross_fitting

SHAPES = {"llama-3.2-1b": (16, 2048), "qwen3-32b": (64, 5120)}
DIRECTIONS, WITH_SIGNAL, SIGNAL = 100, 10, 0.3
PROCESS = Path("/proc/self")  # on Linux


def make_states(layers: int, examples: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Activations [layers, examples, width] in bfloat16, and labels."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(examples) % 2
    size = 3 / torch.arange(1, DIRECTIONS + 1).sqrt()
    states = torch.empty(layers, examples, width, dtype=torch.bfloat16)
    for layer in states:
        source = torch.randn(examples, DIRECTIONS, generator=generator)
        source[:, :WITH_SIGNAL] += SIGNAL * (2 * labels[:, None] - 1)
        mixing = size[:, None] * torch.randn(DIRECTIONS, width, generator=generator)
        layer.copy_(source @ mixing + torch.randn(examples, width, generator=generator))
    return states, labels


def ours(
    states: torch.Tensor, labels: torch.Tensor, folds: torch.Tensor, strengths: torch.Tensor | None = None
) -> torch.Tensor:
    """Held-out logits [layers, examples]; strengths are searched for where none are given."""
    held_out = folds == torch.arange(int(folds.max()) + 1)[:, None]
    step = max(1, CHUNK_BYTES // (states[0].nelement() * 4))

    def some(start: int) -> torch.Tensor:
        wide = states[start : start + step].float()
        if strengths is None:
            chosen = choose_strengths(wide, labels, cross_fitting(folds), clearly_worse=np.inf)
        else:
            chosen = strengths[start : start + step]
        probes = fit(features=wide, labels=labels, train=~held_out, strengths=chosen)
        return torch.where(held_out, probes.logits(wide), 0.0).sum(1)

    return torch.cat([some(start) for start in range(0, len(states), step)])


def theirs(
    states: torch.Tensor,
    labels: torch.Tensor,
    folds: torch.Tensor,
    strengths: torch.Tensor | None = None,
    tolerance: float = 1e-6,
) -> np.ndarray:
    """The same by a loop over layers, folds and strengths."""
    labels, folds = labels.numpy(), folds.numpy()
    count = folds.max() + 1
    logits = np.zeros((len(states), len(labels)))
    for number, layer in enumerate(states):
        wide = layer.double().numpy()

        def train(left_out: np.ndarray, strength: float, wide=wide):
            inside = ~left_out
            mean, scale = wide[inside].mean(0), wide[inside].std(0)
            model = LogisticRegression(
                C=1 / (strength * inside.sum()), class_weight="balanced", tol=tolerance, max_iter=10_000
            )
            model.fit((wide[inside] - mean) / scale, labels[inside])
            return lambda rows: model.decision_function((wide[rows] - mean) / scale)

        losses = np.zeros((len(STRENGTHS), count))
        for fold in range(count) if strengths is None else ():
            pair = [(fold, (fold + 1) % count), ((fold + 1) % count, fold)]  # outer fold, validated on
            for index, strength in enumerate(STRENGTHS):
                predict = train(np.isin(folds, pair[0]), strength)
                for outer, inner in pair:
                    losses[index, outer] += balanced_loss(predict(folds == inner), labels[folds == inner])
        for fold in range(count):
            chosen = STRENGTHS[losses[:, fold].argmin()] if strengths is None else float(strengths[number, fold])
            held_out = folds == fold
            logits[number, held_out] = train(held_out, chosen)(held_out)
    return logits


def chances(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def largest(values: np.ndarray) -> float:
    return float(np.abs(values).max())


def balanced_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    loss = np.logaddexp(0, (1 - 2 * labels) * logits)
    return float(np.mean([loss[labels == kind].mean() for kind in (0, 1)]))


def timed(work: Callable, **arguments: object) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work(**arguments)
    return time.perf_counter() - start, result


def resident(kind: str) -> int:
    """Bytes of memory that this process holds (RSS) or held at most since it was last told to forget (HWM).

    Zero where there is no /proc to ask.
    """
    if not PROCESS.is_dir():
        return 0
    (line,) = (line for line in (PROCESS / "status").read_text().splitlines() if line.startswith(f"Vm{kind}:"))
    return int(line.split()[1]) * 1024


def measure(name: str, examples: int, some: int) -> list[dict]:
    layers, width = SHAPES[name]
    folds = torch.arange(examples) // 2 % 5
    ours(*make_states(1, 100, 64), folds[:100])  # so that what libraries load once is not counted
    before = resident("RSS")
    states, labels = make_states(layers, examples, width)
    if PROCESS.is_dir():
        (PROCESS / "clear_refs").write_text("5")  # forget the peak
    searching, _ = timed(ours, states=states, labels=labels, folds=folds)
    memory = (resident("HWM") - before) / states.nbytes
    strengths = choose_strengths(states[:1].float(), labels, cross_fitting(folds)).expand(layers, -1)
    fitting, logits = timed(ours, states=states, labels=labels, folds=folds, strengths=strengths)
    exact = chances(theirs(states[:1], labels, folds, strengths=strengths[:1], tolerance=1e-9)[0])
    rows = []
    for job, seconds, given in (("fit", fitting, strengths), ("search", searching, None)):
        count = layers if job == "fit" and name == "llama-3.2-1b" else some
        own = None if given is None else given[:count]
        slow, said = timed(theirs, states=states[:count], labels=labels, folds=folds, strengths=own)
        rows.append(
            {
                "shape": name,
                "job": job,
                "layers": layers,
                "seconds": seconds,
                "layers of theirs": count,
                "seconds of theirs": slow,
                "times as fast": slow / count / (seconds / layers),
                "error": largest(chances(logits[0].numpy()) - exact) if job == "fit" else None,
                "error of theirs": largest(chances(said[0]) - exact) if job == "fit" else None,
                "memory": memory if job == "search" and PROCESS.is_dir() else None,
            }
        )
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    options = arguments(
        shapes={"nargs": "+", "default": list(SHAPES), "choices": list(SHAPES)},
        examples={"type": int, "default": 2000},
        layers_of_theirs={"type": int, "default": 1},
    )
    give_back_freed_blocks()  # as the stage does
    warnings.filterwarnings("ignore", category=FutureWarning)
    rows = [row for name in options.shapes for row in measure(name, options.examples, options.layers_of_theirs)]
    report(rows, machine(), options.record)
