"""The probe stage from files to files; needs torch, numpy, polars and pyarrow, and no workflow engine."""

from collections.abc import Sequence
from pathlib import Path

from anchorscope.choose.balance import before_balance
from anchorscope.extract.axes import Grid
from anchorscope.extract.store import open_activations
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.delta import measure
from anchorscope.probe.examples import TooFew
from anchorscope.probe.fitting import Fitting
from anchorscope.probe.written import write_probed


def probe_answers(
    activations: Sequence[Path | str],
    chosen: Sequence[Path | str],
    tables: Sequence[Path | str],
    probes: Sequence[Path | str],
    *,
    dataset: str,
    grid: Grid,
    knockouts: list[str],
    repeats: int,
    fitting: Fitting,
) -> None:
    """Write the tables of `measure`, in its order, and the probes of each component and position of the grid.

    Where the answers are too few to probe, all are empty and say why, so that other datasets reach the figures.
    """
    extracted = made_from(activations[0])
    found = measure(
        open_activations(activations, grid, knockouts),
        folds=fitting.folds,
        repeats=repeats,
        seed=fitting.seed,
        where=f"{extracted['model']['name']} on {dataset}",
        on_gpu=fitting.on_gpu,
        headline=fitting.headline,
    )
    made = {"stage": "probe", "dataset": dataset, "folds": fitting.folds, "repeats": repeats, "code": fitting.code}
    made |= {key: extracted[key] for key in ("model", "path")}
    if isinstance(found, TooFew):
        count = before_balance(chosen)
        said = "Before the balance, which `balance: false` switches off"
        why = f"{found.why} {said}, {count['right']} were right and {count['hallucinated']} hallucinated."
        log.warning("%s", why)
        write_probed([*tables, *probes], TooFew(why), made)
    else:
        write_probed([*tables, *probes], [*found[:-1], *found.probes], made)
