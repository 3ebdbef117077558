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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="the results of a run")


def run(options: argparse.Namespace) -> None:
    checked = find_damage(options.folder)
    damaged = {path: why for path, why in checked.items() if why}
    for path, why in damaged.items():
        print(f"{path} is damaged ({why}).")
    if damaged:
        print(f"{len(damaged)} of {len(checked)} are damaged; make them again, with the options of your run:")
        print(command_to_remake(damaged))
    elif checked:
        print(f"All {len(checked)} Parquet files in {options.folder} are whole.")
    else:
        print(f"There is no Parquet file in {options.folder}.")
    sys.exit(1 if damaged or not checked else 0)
