"""Who is scored by which probe: folds and halves that never split a subject."""

import hashlib

import numpy as np


def assign_folds(ids: list[str], groups: list[str], labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """A fold number an example, [examples]; stratified by label, a group never in two folds.

    Groups are dealt in a seeded order, each to the fold where its labels are rarest so far.
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
    """0 or 1 an example: the half of the training data it belongs to, stratified and grouped like folds."""
    return assign_folds(ids, groups, labels, 2, seed + 1)
