"""All methods from files to a file: on one dataset, and having learnt from some datasets on another one.

On one dataset they are cross-fitted: every example is scored by what never saw it. Between datasets nobody learns from
what is tested: an example that shares its question or its subject with the tested dataset is left out of training. Of
Pathway Reweighting only the probe carries over: the states of a dataset are reweighted by its own gate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from anchorscope.detect.areas import areas
from anchorscope.detect.fits import Fits, LayerProbes, every_method, probe_files, probe_layers, probe_layers_at
from anchorscope.detect.methods import METHODS, OTHERS
from anchorscope.detect.reading import DetectionFiles, Reading, join_readings, read_files
from anchorscope.extract.axes import CLEAN
from anchorscope.files.frames import write_frame
from anchorscope.files.logs import log, progress
from anchorscope.files.sealed_parquet import provenance
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import MIN_PER_CLASS, too_few
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.kept import load_probes
from anchorscope.probe.pooled import PooledReader
from anchorscope.probe.scores import each
from anchorscope.probe.strengths import TrainingSets, choose_strengths, cross_fitting, own_fold, whole
from anchorscope.probe.written import write_derived

SCORES = {
    "method": pl.String,
    "id": pl.String,
    "cluster": pl.String,
    "hallucinated": pl.Boolean,
    "fold": pl.Int8,
    "score": pl.Float64,
    "p": pl.Float64,
}
TRANSFER = {
    "method": pl.String,
    "trained_on": pl.String,
    "dataset": pl.String,
    "n": pl.Int64,
    "left_out": pl.Int64,
    "auc": pl.Float64,
    "auc_low": pl.Float64,
    "auc_high": pl.Float64,
}


def score_methods(
    files: DetectionFiles,
    probes: Path | str,
    dataset: str,
    target: Path | str,
    *,
    answer_scores: bool,
    fitting: Fitting,
) -> None:
    """Write what every method says of a model's answers on a dataset; nothing where they were too few to probe.

    `probes` are those of the main run, whose first repeat has the same folds.
    """

    def make_table() -> list[pl.DataFrame]:
        reader, reading = read_files(files, dataset, answer_scores, fitting)
        kept = load_probes(probes).fitted(FULL, repeat=0)

        def probe(clean: Tensor, layers: slice) -> list[LayerProbes]:
            device = clean.device
            plain = each(kept, lambda tensor: tensor[layers].to(device))
            return [probe_layers(clean, reading.labels.to(device), training_sets_of(reading).to(device), plain)]

        (of_layers,) = probe_files(reader, probe, fitting.on_gpu)
        return [scores_table(reading, of_layers, fitting.seed)]

    made = {"stage": "score_methods", "dataset": dataset, "folds": fitting.folds, "code": fitting.code}
    write_derived([target], probes, make_table, made)


def training_sets_of(reading: Reading) -> TrainingSets:
    """All folds but one, for each fold."""
    return cross_fitting(torch.from_numpy(reading.folds))


def scores_table(reading: Reading, probes: LayerProbes, seed: int) -> pl.DataFrame:
    """One row per method and example. `probes` are the plain ones of all layers, fitted to `training_sets_of`."""
    folds = torch.from_numpy(reading.folds)
    said = every_method(Fits(reading, probes, training_sets_of(reading), together=reading.folds, seed=seed))
    everyone = {
        "id": reading.ids,
        "cluster": reading.clusters,
        "hallucinated": reading.hallucinated,
        "fold": reading.folds,
    }
    return pl.concat(
        pl.DataFrame(
            {
                "method": method,
                **everyone,
                "score": own_fold(found.scores, folds).numpy(),
                "p": own_fold(found.chances, folds).numpy(),
            },
            schema=SCORES,
        )
        for method, found in said.items()
    )


def carry_over(
    files: Mapping[str, DetectionFiles], model: str, target: Path | str, answer_scores: bool, fitting: Fitting
) -> None:
    """Write how well methods of a model carry over, from the files of each dataset; those not probed are left out."""
    probed = {name: own for name, own in files.items() if not too_few(own["reweighted"][0])}
    table = pl.DataFrame(schema=TRANSFER)
    if len(probed) > 1:
        readers, readings = zip(
            *(read_files(own, name, answer_scores, fitting) for name, own in probed.items()), strict=True
        )
        planned, pooled = plans(list(probed), readings), PooledReader(dict(zip(probed, readers, strict=True)))
        probes = probe_files(pooled, probe_plans(planned), fitting.on_gpu) if planned.taught else []
        table = transfer_areas(planned, probes, fitting.seed)
    write_frame(target, table, provenance(stage="carry_over", model=model, code=fitting.code))


@dataclass(frozen=True)
class Plan:
    """Who learns, and who is tested, among the examples of several datasets after each other."""

    trained_on: str
    left_out: int  # examples that share a question or a subject with what is tested
    train: np.ndarray  # the others, [examples], bool
    tested: dict[str, np.ndarray]  # by dataset: [examples], bool


@dataclass(frozen=True)
class Plans:
    """What is learnt and tested, and where too few are left to learn from."""

    everyone: Reading
    dataset: np.ndarray  # the number of each example's, [examples]
    taught: list[Plan]
    untaught: list[Plan]

    def training_sets(self, plan: Plan) -> TrainingSets:
        return whole(torch.from_numpy(plan.train), torch.from_numpy(self.everyone.folds))


def plans(datasets: Sequence[str], readings: Sequence[Reading]) -> Plans:
    """Each dataset alone, tested on every other; and all but one, tested on that one.

    Datasets that are tested after the same training are tested together.
    """
    everyone, dataset = join_readings(readings), np.repeat(np.arange(len(readings)), [len(one.ids) for one in readings])
    of = {name: dataset == number for number, name in enumerate(datasets)}
    pairs = [(name, mine, other) for name, mine in of.items() for other in of if other != name]
    if len(of) > 2:  # all but one of two would be the other
        pairs += [(OTHERS, ~mine, name) for name, mine in of.items()]
    clusters = np.array(everyone.clusters)
    found: dict[tuple[str, bytes], Plan] = {}
    for trained_on, teachers, tested in pairs:
        train = teachers & ~np.isin(clusters, clusters[of[tested]])
        left_out = int(teachers.sum() - train.sum())
        plan = found.setdefault((trained_on, train.tobytes()), Plan(trained_on, left_out, train, {}))
        plan.tested[tested] = of[tested]
    judged = [(plan, _too_few(plan, everyone)) for plan in found.values()]
    for why in filter(None, (why for _, why in judged)):
        log.warning("not carried over: %s", why)
    taught, untaught = ([plan for plan, why in judged if (why is None) == enough] for enough in (True, False))
    return Plans(everyone, dataset, taught, untaught)


def _too_few(plan: Plan, everyone: Reading) -> str | None:
    """Why nothing can be learnt from who is left; None where something can."""
    labels, folds = everyone.hallucinated, everyone.folds
    right, wrong = int((plan.train & ~labels).sum()), int((plan.train & labels).sum())
    both = all(len(set(labels[plan.train & (folds == fold)])) == 2 for fold in np.unique(folds))
    if min(right, wrong) >= MIN_PER_CLASS and both:
        return None
    return (
        f"{plan.left_out} examples of {plan.trained_on} share a question or a subject with {', '.join(plan.tested)}; "
        f"{right} right and {wrong} hallucinated answers are left, which are too few to learn from. {MIN_PER_CLASS} of "
        "each are needed, and some of each in every fold."
    )


def probe_plans(planned: Plans) -> Callable[[Tensor, slice], list[LayerProbes]]:
    """A function from clean states of some layers [layers, examples, width] to the plain probes of each plan.

    They are fitted here because they learn from a whole dataset, or from several. All layers have the strength that
    suits the layer that is read.
    """
    labels, clean = planned.everyone.labels, planned.everyone.states[CLEAN][None]
    by_plan = [planned.training_sets(plan) for plan in planned.taught]
    strengths = [choose_strengths(clean, labels, one)[0] for one in by_plan]

    def probe(states: Tensor, _: slice) -> list[LayerProbes]:
        known, device = labels.to(states.device), states.device
        return [
            probe_layers_at(states, known, one.to(device), strengths=strength)
            for one, strength in zip(by_plan, strengths, strict=True)
        ]

    return probe


def transfer_areas(planned: Plans, probes: Sequence[LayerProbes], seed: int) -> pl.DataFrame:
    """One row per method, training set and dataset that is tested; `probes` are those of each plan in all layers.

    Where too few were left to learn from, there is no AUC.
    """
    everyone, found = planned.everyone, []
    for plan, fitted in zip(planned.taught, progress(probes, len(probes), "carrying over"), strict=True):
        strengths = fitted.strengths.unique().tolist()  # one for all probes of states
        fits = Fits(everyone, fitted, planned.training_sets(plan), planned.dataset, seed, strengths)
        said = every_method(fits)
        scores = np.array([one.scores[0].numpy() for one in said.values()])
        for dataset, mine in plan.tested.items():
            clusters = list(compress(everyone.clusters, mine))
            measured = areas(scores[:, mine], everyone.hallucinated[mine], clusters, folds=np.zeros(mine.sum()))
            found.append(_rows(plan, dataset, list(said), measured))
    methods = [name for name, method in METHODS.items() if method.learns or name in everyone.outputs]
    found += [_rows(plan, dataset, methods, {}) for plan in planned.untaught for dataset in plan.tested]
    return pl.concat([pl.DataFrame(schema=TRANSFER), *found])


def _rows(plan: Plan, dataset: str, methods: list[str], measured: dict[str, np.ndarray]) -> pl.DataFrame:
    """A row for each method; `measured` are its areas, if there are any."""
    row = {
        "trained_on": plan.trained_on,
        "dataset": dataset,
        "n": int(plan.tested[dataset].sum()),
        "left_out": plan.left_out,
        **dict.fromkeys(("auc", "auc_low", "auc_high")),
    }
    return pl.DataFrame({"method": methods, **row, **measured}, schema=TRANSFER)
