"""The examples of one model on one dataset: their labels and folds, and whether they are enough to be probed.

Folds and halves, which they are dealt into once for each repeat, never split a subject. They are written here because
scikit-learn, which has stratified group folds, is not a dependency at run time.

Whether there are enough is found out once, then passed on from file to file. A file made where there were not has no
rows, and `not_probed` in its metadata says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from anchorscope.files.identity import seeded_place
from anchorscope.files.sealed_parquet import made_from

MIN_PER_CLASS = 20
SEEDS_APART = 1000  # between the repeats' seeds; a seed and the next one give related folds and halves
NOT_PROBED = "not_probed"
Found = TypeVar("Found")
Pair = tuple[str, str]  # a model and a dataset


@dataclass(frozen=True)
class TooFew:
    """The answers of one model on one dataset are too few, or too one-sided, for a probe."""

    why: str

    def metadata(self) -> dict[str, str]:
        """What a file's provenance says of it."""
        return {NOT_PROBED: self.why}


def enough(found: Found | TooFew) -> Found:
    """What was found; that there is too little of it is an error here."""
    if isinstance(found, TooFew):
        raise ValueError(found.why)
    return found


def too_few(path: Path | str) -> TooFew | None:
    """Why nothing was probed, as a file says that was made from probes; None where something was."""
    why = made_from(path).get(NOT_PROBED)
    return None if why is None else TooFew(why)


def not_probed(files: Mapping[Pair, Path | str]) -> dict[Pair, str]:
    """Why some models were not probed on some datasets, from a file of each. A run in which none was is an error."""
    missing = {pair: few.why for pair, path in files.items() if (few := too_few(path))}
    if len(missing) == len(files):
        raise ValueError(f"Nothing could be probed. {next(iter(missing.values()))}")
    return missing


def assign_folds(ids: list[str], groups: list[str], labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each example, [examples]: stratified by label, no group in two folds.

    Groups are dealt out in a seeded order, each to the fold where its labels are rarest so far.
    """
    names = sorted(set(groups), key=lambda name: seeded_place(seed, name))
    members: dict[str, list[int]] = {name: [] for name in names}
    for index in sorted(range(len(ids)), key=lambda index: ids[index]):
        members[groups[index]].append(index)
    # Large groups first: they are the hardest to place evenly.
    names.sort(key=lambda name: -len(members[name]))
    counts = np.zeros((folds, 2))
    totals = np.bincount(labels.astype(int), minlength=2).clip(min=1)
    assigned = np.empty(len(ids), dtype=np.int64)
    for name in names:
        wanted = np.bincount(labels[members[name]].astype(int), minlength=2)
        crowding = ((counts + wanted) ** 2 / totals).sum(axis=1) - (counts**2 / totals).sum(axis=1)
        fold = int(np.lexsort((counts.sum(axis=1), crowding))[0])
        assigned[members[name]] = fold
        counts[fold] += wanted
    return assigned


def assign_halves(ids: list[str], groups: list[str], labels: np.ndarray, seed: int) -> np.ndarray:
    """The half of the training data that each example belongs to, 0 or 1; stratified and grouped like folds."""
    return assign_folds(ids, groups=groups, labels=labels, folds=2, seed=seed + 1)


def shuffle_labels(ids: list[str], labels: np.ndarray, folds: np.ndarray, seed: int) -> np.ndarray:
    """The labels in a seeded order, [examples]. They stay in their fold, so that it has both classes as before."""
    shuffled = labels.copy()
    order = np.array(sorted(range(len(ids)), key=lambda index: seeded_place(seed, ids[index])))
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        shuffled[members] = labels[order[folds[order] == fold]]
    return shuffled


@dataclass(frozen=True)
class Split:
    """One draw of folds and halves, each [examples], and the labels of the control probes."""

    folds: np.ndarray
    halves: np.ndarray
    shuffled: np.ndarray  # bool


@dataclass(frozen=True)
class Examples:
    """The examples of one model on one dataset, in the order of the activations."""

    ids: list[str]
    clusters: list[str]  # the subject where there is one, else the example itself
    popularity: list[int | None]
    hallucinated: np.ndarray  # [examples], bool
    splits: list[Split]  # one for each repeat
    uncut: dict[str, np.ndarray] = field(default_factory=dict)  # by intervention, where it cuts nothing, [examples]

    def measured(self, intervention: str) -> np.ndarray:
        """Whom an intervention concerns, [examples]."""
        return ~self.uncut.get(intervention, np.zeros(len(self.ids), bool))


def examples_of(keys: list[dict], folds: int, repeats: int, seed: int, where: str) -> Examples | TooFew:
    """Labels, clusters and folds; or that a class is too small to probe, and how small."""
    ids = [key["id"] for key in keys]
    clusters = [key["subject"] or key["id"] for key in keys]
    hallucinated = np.array([not key["right"] for key in keys], dtype=bool)
    right, wrong = int((~hallucinated).sum()), int(hallucinated.sum())
    if min(right, wrong) < MIN_PER_CLASS:
        return TooFew(
            f"{where}: {right} right and {wrong} hallucinated answers are too few to probe; "
            f"{MIN_PER_CLASS} of each are needed. Ask more questions, or use a model whose answers are less one-sided."
        )
    seeds = [seed + SEEDS_APART * repeat for repeat in range(repeats)]
    splits = [_split(ids, clusters, hallucinated, folds=folds, seed=one) for one in seeds]
    one_sided = [fold for split in splits if (fold := one_sided_fold(hallucinated, split)) is not None]
    if one_sided:
        return TooFew(
            f"{where}: fold {one_sided[0]} or a half of its training data has one class only, because a few subjects "
            "hold most examples; ask more questions or lower `folds`."
        )
    return Examples(
        ids=ids,
        clusters=clusters,
        popularity=[key["popularity"] for key in keys],
        hallucinated=hallucinated,
        splits=splits,
    )


def _split(ids: list[str], clusters: list[str], hallucinated: np.ndarray, *, folds: int, seed: int) -> Split:
    fold_of = assign_folds(ids, groups=clusters, labels=hallucinated, folds=folds, seed=seed)
    half_of = assign_halves(ids, groups=clusters, labels=hallucinated, seed=seed)
    return Split(fold_of, half_of, shuffle_labels(ids, labels=hallucinated, folds=fold_of, seed=seed))


def one_sided_fold(hallucinated: np.ndarray, split: Split) -> int | None:
    """The first fold that has one class only, itself or in a half of its training data."""
    for fold in range(split.folds.max() + 1):
        parts = [split.folds == fold, *((split.folds != fold) & (split.halves == half) for half in (0, 1))]
        if any(len(set(hallucinated[part])) < 2 for part in parts):
            return fold
    return None
