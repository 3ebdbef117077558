"""The estimates of one experiment for one model on one dataset, from the files that its passes left."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from anchorscope.experiments.awareness import awareness_rows
from anchorscope.experiments.boundary import CHOSEN_NEEDED, boundary_rows, read_known
from anchorscope.experiments.estimates import to_table
from anchorscope.experiments.groups import read_groups
from anchorscope.experiments.modes import SAMPLE, saliency_rows
from anchorscope.experiments.new_passes import answer_only_rows, patching_rows
from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.summarise.bootstrap import resample

Files = Mapping[str, str | list[str]]  # by name: delta, layers, and what the experiment measured


@dataclass(frozen=True)
class Settings:
    """How an experiment is estimated."""

    headline: Headline
    draws: int
    seed: int


def estimate_experiment(experiment: str, files: Files, settings: Settings) -> pl.DataFrame:
    """One row per measure, condition, stratum, rule, anchor and layer."""
    if experiment == "saliency":
        reference = read_frame(str(files["layers"])).filter("is_reference", **vars(settings.headline))["layer"][0]
        return to_table(saliency_rows(read_frame(str(files["measured"])), reference, settings.seed), **SAMPLE)
    groups = read_groups(read_frame(str(files["delta"])), settings.headline)
    resamples = resample(groups.examples["cluster"].to_list(), groups.repeats, settings.draws, settings.seed)
    if experiment == "boundary":
        chosen = pl.concat(read_frame(path, CHOSEN_NEEDED) for path in files["chosen"])
        unsure = pl.concat(read_frame(path, ["id", "refused"]) for path in files["unsure"])
        return to_table(boundary_rows(read_known(groups, chosen, unsure), groups, resamples))
    measured = read_frame(str(files["measured"]))
    if experiment == "awareness":
        return to_table(awareness_rows(measured, resamples))
    of_passes = {"patching": patching_rows, "answer_only": answer_only_rows}
    return to_table(of_passes[experiment](measured, groups, resamples))
