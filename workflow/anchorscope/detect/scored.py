"""What every method says of the examples of one model on one dataset, side by side."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from anchorscope.detect.names import METHODS


@dataclass(frozen=True)
class Scored:
    """The scores of all methods for the same examples, methods in the order of all tables."""

    methods: list[str]
    scores: np.ndarray  # [methods, examples]; higher: more likely hallucinated
    p: np.ndarray  # [methods, examples]; probability of "hallucinated"
    hallucinated: np.ndarray  # [examples], bool
    clusters: list[str]
    folds: np.ndarray  # [examples]

    def of(self, method: str) -> np.ndarray:
        """One method's scores, [examples]."""
        return self.scores[self.methods.index(method)]


def scored_of(table: pl.DataFrame, where: str) -> Scored:
    """A table with one row per method and example; a method that lacks examples of another is an error."""
    methods = [name for name in METHODS if name in set(table["method"])]
    by_method = {name: table.filter(method=name).sort("id") for name in methods}
    first = by_method[methods[0]]
    for name, rows in by_method.items():
        if not rows["id"].equals(first["id"]):
            raise ValueError(f"{where}: {name} has scores of other examples than {methods[0]}; make the scores again.")
    scores, p = (
        np.stack([rows[column].cast(pl.Float64).to_numpy() for rows in by_method.values()]) for column in ("score", "p")
    )
    return Scored(
        methods=methods,
        scores=scores,
        p=p,
        hallucinated=first["hallucinated"].to_numpy(),
        clusters=first["cluster"].to_list(),
        folds=first["fold"].to_numpy(),
    )
