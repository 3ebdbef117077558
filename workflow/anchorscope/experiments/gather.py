"""The estimates of an experiment for all models and datasets: as one table, and as what its claim is judged by."""

from collections.abc import Mapping, Sequence

import polars as pl

from anchorscope.experiments.claims import judge_experiment
from anchorscope.files.frames import read_frame
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.probed import Pair, not_probed
from anchorscope.summarise.claims import JudgedClaim, reads_truth
from anchorscope.summarise.notes import described


def gather_experiment(pairs: Sequence[Pair], files: Sequence[str], sources: Mapping[str, str]) -> pl.DataFrame:
    """One table of all pairs that were probed, with what a reader must know about each; without resamples."""
    by_pair = {(model, dataset): path for (model, dataset), path in zip(pairs, files, strict=True)}
    missing = not_probed(by_pair)
    return pl.concat(
        described(
            read_frame(path).drop("resampled"),
            model=model,
            weights=made_from(path)["model"]["weights"],
            dataset=dataset,
            source=sources[dataset],
        )
        for (model, dataset), path in by_pair.items()
        if (model, dataset) not in missing
    )


def judge_all(
    files: Mapping[str, Sequence[str]], pairs: Sequence[Pair], probed: Sequence[Pair], layers: pl.DataFrame
) -> list[JudgedClaim]:
    """The claims of all experiments, each with one file of estimates per pair; `layers` has the headline's rows."""
    readable = {
        (model, dataset) for model, dataset in probed if reads_truth(layers.filter(model=model, dataset=dataset))
    }

    def tables(paths: Sequence[str]) -> dict[Pair, pl.DataFrame]:
        return {pair: read_frame(path) for pair, path in zip(pairs, paths, strict=True) if pair in probed}

    return [claim for name, paths in files.items() for claim in judge_experiment(name, tables(paths), readable)]
