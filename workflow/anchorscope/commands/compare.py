"""`anchorscope compare`: a run beside the published figures, and beside another run."""

import argparse
from pathlib import Path

from anchorscope.files.bundled import RESOURCES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, help="the results of a run")
    parser.add_argument("other", type=Path, nargs="?", help="those of another; without it, only the published figures")
    parser.add_argument(
        "--output", type=Path, default=Path("comparison"), help="a folder for figure and table (comparison)"
    )


def run(options: argparse.Namespace) -> None:
    from anchorscope.compare.job import compare_runs

    landmarks = RESOURCES / "landmarks.yaml"
    print(compare_runs(options.run, options.other, output=options.output, landmarks=landmarks))
