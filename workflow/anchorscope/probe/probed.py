"""Whether the answers of one model on one dataset could be probed: found out once, then passed on from file to file.

A file made where they could not has no rows, and `not_probed` in its metadata says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from anchorscope.files.sealed_parquet import made_from

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
