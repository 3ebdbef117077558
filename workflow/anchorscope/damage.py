"""Which Parquet files of a run are damaged.

`python -m anchorscope.damage results` reads every Parquet file below a folder whole, prints a sentence for each that is
not as it was written, and at the end the one command that makes all of them again.
"""

import argparse
import sys
from glob import glob
from pathlib import Path

from anchorscope.files.sealed_parquet import DamagedFileError, check, command_to_remake


def find_damage(folder: Path) -> dict[Path, str | None]:
    """What is wrong with each Parquet file below `folder`, links followed; nothing where it is whole."""
    names = sorted(glob("**/*.parquet", root_dir=folder, recursive=True))
    found: dict[Path, str | None] = dict.fromkeys(folder / name for name in names)
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
    if not found:
        print(f"There is no Parquet file in {folder}.")
        return 1
    if not damaged:
        print(f"All {len(found)} Parquet files in {folder} are whole.")
        return 0
    print(f"{len(damaged)} of {len(found)} are damaged; make them again, with the options of your run:")
    print(command_to_remake(damaged))
    return 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find damaged Parquet files.")
    parser.add_argument("folder", type=Path, help="the results of a run")
    sys.exit(main(parser.parse_args().folder))
