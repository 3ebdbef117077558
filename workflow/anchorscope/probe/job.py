"""The probe stage from files to files; needs torch, numpy, polars and pyarrow, and no workflow engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorscope.extract.axes import Grid, Headline
from anchorscope.extract.store import open_activations
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.delta import measure
from anchorscope.probe.probed import TooFew, write_probed


@dataclass(frozen=True)
class ProbeSettings:
    """What is probed of one model on one dataset, and how."""

    model: str
    dataset: str
    grid: Grid
    knockouts: list[str]
    headline: Headline  # whose probes also learn from labels of which some are wrong
    folds: int
    repeats: int
    seed: int
    on_card: bool  # whether a card is used
    code: str  # fingerprint


def probe_files(activations: Sequence[Path | str], targets: Sequence[Path | str], settings: ProbeSettings) -> None:
    """Write every table of `measure`, in its order. Where the answers are too few to probe, all are empty and say why.

    So the other models and datasets reach the figures.
    """
    found = measure(
        open_activations(activations, settings.grid, settings.knockouts),
        folds=settings.folds,
        repeats=settings.repeats,
        seed=settings.seed,
        where=f"{settings.model} on {settings.dataset}",
        on_card=settings.on_card,
        headline=settings.headline,
    )
    if isinstance(found, TooFew):
        found = TooFew(f"{found.why} {before_balance(activations)}")
        log.warning("%s", found.why)
    extracted = made_from(activations[0])
    made = {
        "stage": "probe",
        "model": extracted["model"],
        "path": extracted["path"],
        "dataset": settings.dataset,
        "folds": settings.folds,
        "repeats": settings.repeats,
        "code": settings.code,
    }
    write_probed(targets, found, made)


def before_balance(activations: Sequence[Path | str]) -> str:
    """How many answers there were before the balance, from one file of each shard."""
    shards = {Path(path).parent: path for path in activations}
    counts = [made_from(path)["before_balance"] for path in shards.values()]
    right, wrong = (sum(count[verdict] for count in counts) for verdict in ("right", "hallucinated"))
    return f"Before the balance, which `balance: false` switches off, {right} were right and {wrong} hallucinated."
