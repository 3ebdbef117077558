"""How well a method that learnt from some datasets does on another one.

Of Pathway Reweighting only the probe carries over: the states of a dataset are reweighted by its own gate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.areas import areas
from anchorscope.detect.fitted import fit_trainings
from anchorscope.detect.many_layers import LayerProbes, probe_layers_at
from anchorscope.detect.methods import every_method
from anchorscope.detect.names import OTHERS
from anchorscope.detect.reading import Reading, joined
from anchorscope.detect.trainings import Trainings, whole
from anchorscope.files.logs import progress

SCHEMA = {
    "method": pl.String,
    "trained_on": pl.String,
    "dataset": pl.String,
    "n": pl.Int64,
    "auc": pl.Float64,
    "auc_low": pl.Float64,
    "auc_high": pl.Float64,
}


@dataclass(frozen=True)
class Plan:
    """Who learns, and who is tested, among the examples of several datasets after each other."""

    trained_on: str
    trainings: Trainings  # one
    tested: dict[str, np.ndarray]  # by dataset: [examples], bool


def plans(datasets: Sequence[str], readings: Sequence[Reading]) -> list[Plan]:
    """Each dataset alone, tested on every other; and all but one, tested on that one."""
    of = dict(zip(datasets, _members(readings), strict=True))
    folds = torch.from_numpy(np.concatenate([reading.folds for reading in readings]))
    found = []
    for name, mine in of.items():
        if len(of) > 1:
            others = {other: members for other, members in of.items() if other != name}
            found.append(Plan(name, whole(torch.from_numpy(mine), folds), others))
        if len(of) > 2:  # all but one of two would be the other
            found.append(Plan(OTHERS, whole(torch.from_numpy(~mine), folds), {name: mine}))
    return found


def _members(readings: Sequence[Reading]) -> Iterator[np.ndarray]:
    """Who of all examples belongs to each reading, [examples], bool."""
    number = np.repeat(np.arange(len(readings)), [len(reading.ids) for reading in readings])
    return (number == one for one in range(len(readings)))


def probe_plans(planned: Sequence[Plan], readings: Sequence[Reading]) -> Callable[[Tensor], list[LayerProbes]]:
    """A function from clean states of some layers [layers, examples, width] to the plain probes of each plan.

    All layers have the strength that suits the layer that is read.
    """
    everyone = joined(readings)
    labels, clean = everyone.labels, everyone.states["first", "clean"][None]
    strengths = [fit_trainings(clean, labels, plan.trainings).strengths[0] for plan in planned]

    def probe(states: Tensor) -> list[LayerProbes]:
        known, device = labels.to(states.device), states.device
        return [
            probe_layers_at(states, known, plan.trainings.to(device), strengths=strength)
            for plan, strength in zip(planned, strengths, strict=True)
        ]

    return probe


def carried_over(
    planned: Sequence[Plan], probes: Sequence[LayerProbes], readings: Sequence[Reading], seed: int
) -> pl.DataFrame:
    """One row per method, training set and dataset that is tested; `probes` are those of each plan in all layers."""
    everyone, found = joined(readings), []
    together = np.argmax(list(_members(readings)), axis=0)
    for plan, fitted in zip(planned, progress(probes, len(probes), "carrying over"), strict=True):
        strengths = fitted.plain.strengths.unique().tolist()  # one for all probes of states
        said = every_method(everyone, fitted, plan.trainings, together=together, seed=seed, strengths=strengths)
        scores = np.array([one.scores[0].numpy() for one in said.values()])
        for dataset, mine in plan.tested.items():
            clusters = [cluster for cluster, own in zip(everyone.clusters, mine, strict=True) if own]
            measured = areas(scores[:, mine], everyone.hallucinated[mine], clusters, folds=np.zeros(mine.sum()))
            names = {"method": list(said), "trained_on": plan.trained_on, "dataset": dataset, "n": int(mine.sum())}
            found.append(pl.DataFrame(names | measured, schema=SCHEMA))
    return pl.concat([pl.DataFrame(schema=SCHEMA), *found])
