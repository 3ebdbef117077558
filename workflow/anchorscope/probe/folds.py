"""Which probe scores an example: folds and halves that never split a subject.

Written here because scikit-learn, which has stratified group folds, is not a dependency at run time.
"""

import hashlib

import numpy as np


def assign_folds(ids: list[str], groups: list[str], labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each example, [examples]: stratified by label, no group in two folds.

    Groups are dealt out in a seeded order, each to the fold where its labels are rarest so far.
    """
    names = sorted(set(groups), key=lambda name: hashlib.sha256(f"{seed}\n{name}".encode()).digest())
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
    order = np.array(
        sorted(range(len(ids)), key=lambda index: hashlib.sha256(f"{seed}\n{ids[index]}".encode()).digest())
    )
    for fold in np.unique(folds):
        members = np.flatnonzero(folds == fold)
        shuffled[members] = labels[order[folds[order] == fold]]
    return shuffled
