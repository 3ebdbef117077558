"""Which Parquet files of a run are damaged.

`python -m anchorscope.damage results` reads every Parquet file below a folder whole, prints a sentence for each that is
not as it was written, and at the end the one command that makes all of them again.
"""

import sys
from pathlib import Path

from anchorscope.parquet import DamagedFileError, check, command_to_remake


def find_damage(folder: Path) -> dict[Path, str | None]:
    """What is wrong with each Parquet file below `folder`; nothing where it is whole."""
    found: dict[Path, str | None] = dict.fromkeys(sorted(folder.rglob("*.parquet")))
    for path in found:
        try:
            check(path)
        except DamagedFileError as error:
            found[path] = error.why
    return found


def main(folder: Path) -> int:
    """Say what was found; the exit code."""
    found = find_damage(folder)
    damaged = {path: why for path, why in found.items() if why}
    for path, why in damaged.items():
        print(f"{path} is damaged ({why}).")
    if not damaged:
        print(f"All {len(found)} Parquet files in {folder} are whole.")
        return 0
    print(f"{len(damaged)} of {len(found)} are damaged; make them again, with the options of your run:")
    print(command_to_remake(damaged))
    return 1


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
