"""What an experiment is: its words, its claim, and how its estimates come from files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from anchorscope.experiments.groups import Groups, read_groups
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.summarise.bootstrap import Resamples, resample
from anchorscope.summarise.claims import Claim, JudgedClaim, Region

ABOVE_ZERO: Region = (0.0, np.inf)


@dataclass(frozen=True)
class Material:
    """What an experiment is estimated from, for one model on one dataset. Files are read when they are asked for."""

    files: Mapping[str, Any]  # by name: delta, layers, and what else the experiment reads
    headline: Headline
    bootstrap_draws: int
    seed: int

    @cached_property
    def groups(self) -> Groups:
        return read_groups(read_frame(str(self.files["delta"])), self.headline)

    @cached_property
    def resamples(self) -> Resamples:
        clusters = self.groups.examples["cluster"].to_list()
        return resample(clusters, len(self.groups.folds), self.bootstrap_draws, self.seed)

    @cached_property
    def reference(self) -> int:
        """The layer whose probe ranks best."""
        return read_frame(str(self.files["layers"])).filter("is_reference", **vars(self.headline))["layer"][0]

    @property
    def measured(self) -> pl.DataFrame:
        return read_frame(str(self.files["measured"]))

    def of_shards(self, kind: str, columns: list[str]) -> pl.DataFrame:
        return pl.concat(read_frame(path, columns) for path in self.files[kind])


@dataclass(frozen=True)
class Wanted:
    """One part of a claim: an effect, averaged over layers, and where it must lie."""

    title: str
    measure: str
    condition: str
    anchor: str | None = "gap"
    stratum: str = "all"
    less: str | None = None  # a condition whose effect is subtracted
    region: Region = ABOVE_ZERO
    needed: bool = True  # else it is left out where it was not measured


@dataclass(frozen=True)
class Experiment:
    """One experiment; figures of its name are in `draw`."""

    title: str
    shown: str  # what its section of the report shows
    claim: Claim  # of its name
    rows: Callable[[Material], Iterator[dict]]  # its estimates, by measure, condition, stratum, rule, anchor and layer
    parts: tuple[Wanted, ...] = ()  # of the claim, which is supported if all of them are
    columns: Mapping[str, Any] = field(default_factory=dict)  # those that only its table has
    # Where no groups are compared: judges an open claim on one dataset by its estimates, if the probe reads truth.
    judge: Callable[[JudgedClaim, pl.DataFrame, bool], JudgedClaim] | None = None
