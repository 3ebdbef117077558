"""`anchorscope damage`: which Parquet files of a run are damaged.

Every one in a folder and its subfolders is read completely. There is one sentence for each damaged file, and then the
command that makes them all again.
"""

import argparse
import sys
from glob import glob
from pathlib import Path

from anchorscope.files.sealed_parquet import DamagedFileError, check, command_to_remake


def find_damage(folder: Path) -> dict[Path, str | None]:
    """Each Parquet file below `folder`, links followed, and what is wrong with it; None if it is whole."""
    names = sorted(glob("**/*.parquet", root_dir=folder, recursive=True))
    checked: dict[Path, str | None] = dict.fromkeys(folder / name for name in names)
    for path in checked:
        try:
            check(path)
        except DamagedFileError as error:
            checked[path] = error.why
    return checked


def check_results(folder: Path) -> int:
    """Report the damage; return the exit code."""
    checked = find_damage(folder)
    damaged = {path: why for path, why in checked.items() if why}
    for path, why in damaged.items():
        print(f"{path} is damaged ({why}).")
    if not checked:
        print(f"There is no Parquet file in {folder}.")
        return 1
    if not damaged:
        print(f"All {len(checked)} Parquet files in {folder} are whole.")
        return 0
    print(f"{len(damaged)} of {len(checked)} are damaged; make them again, with the options of your run:")
    print(command_to_remake(damaged))
    return 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the results of a run")


def run(options: argparse.Namespace) -> None:
    sys.exit(check_results(options.folder))
