"""Tables made from probed answers, on disk; where answers were too few to probe, they are empty and say why."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import made_from, provenance
from anchorscope.probe.examples import TooFew, too_few

EMPTY = pl.DataFrame(schema={"id": pl.String})


def write_probed(
    targets: Sequence[Path | str], found: Sequence[pl.DataFrame] | TooFew, made: Mapping[str, object]
) -> None:
    """Write one table to each target; `made` says what it was made from."""
    if isinstance(found, TooFew):
        made, found = {**made, **found.metadata()}, [EMPTY] * len(targets)
    for target, table in zip(targets, found, strict=True):
        write_frame(target, table, provenance(**made))


def write_derived(
    targets: Sequence[Path | str],
    source: Path | str,
    make: Callable[[], Sequence[pl.DataFrame]],
    made: Mapping[str, object],
) -> None:
    """Write what `make` makes of probed answers, if `source` says that they were probed; it also names the model."""
    inherited = {key: value for key, value in made_from(source).items() if key in ("model", "path", "repeats")}
    write_probed(targets, too_few(source) or make(), {**made, **inherited})
