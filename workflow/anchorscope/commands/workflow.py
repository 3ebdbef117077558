"""`anchorscope run`, `detect` and `report`: Snakemake with the Snakefile that comes with Anchorscope."""

import argparse
import importlib.util
import os
import shlex
import sys
from pathlib import Path

from anchorscope.files.bundled import ROOT

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
SNAKEFILES = ("Snakefile", "workflow/Snakefile")  # that Snakemake finds by itself, as far as anybody has them
TARGETS = {"run": [], "detect": ["detect"], "report": ["results/report.html"]}


def add_snakemake_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="-- ARGUMENT",
        help="anything that Snakemake takes: options such as --cores 2 or --dry-run, targets such as detectors",
    )


add_arguments = add_snakemake_arguments


def run(options: argparse.Namespace) -> None:
    words = snakemake_words([*TARGETS[options.command], *options.arguments])
    print(f"snakemake {shlex.join(words)}", file=sys.stderr, flush=True)
    become_snakemake(words)


def snakemake_words(arguments: list[str]) -> list[str]:
    """What Snakemake is given: these arguments, all cores if they do not say, and our Snakefile if none is here."""
    if not importlib.util.find_spec("snakemake"):
        raise ValueError("The workflow needs packages that are not installed: pip install 'anchorscope[run]'")
    given = known_options(arguments)
    words = list(arguments)
    if given.how is None:
        words += ["--cores", "all"]
    if given.snakefile or any(map(os.path.exists, SNAKEFILES)):
        return words
    if not given.configfile and not (given.directory / "config.yaml").exists():
        raise ValueError(
            f"There is no config.yaml in {given.directory.resolve()}; `anchorscope init .` writes one there."
        )
    return [*words, "--snakefile", str(ROOT / "Snakefile")]


def known_options(arguments: list[str]) -> argparse.Namespace:
    """Those of Snakemake's options that matter before it starts."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--snakefile", "-s")
    parser.add_argument("--configfile", "--configfiles", nargs="+")
    parser.add_argument("--directory", "-d", type=Path, default=Path())
    parser.add_argument("--dry-run", "--dryrun", "-n", action="store_true")
    parser.add_argument(
        "--cores", "-c", "--jobs", "-j", "--workflow-profile", "--profile", nargs="?", const="", dest="how"
    )
    return parser.parse_known_args(arguments)[0]


def become_snakemake(words: list[str]) -> None:
    os.execv(sys.executable, [*SNAKEMAKE, *words])
