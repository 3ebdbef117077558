"""`python -m anchorscope`: extraction and scoring alone, for a GPU node without the workflow engine."""

import argparse
import os
from pathlib import Path

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.score_file import EXAMPLE_LINE, score_file
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, HEADLINE, POSITIONS, Grid, is_knockout
from anchorscope.extract.job import ExtractSettings, extract_file
from anchorscope.files.logs import configure_logging
from anchorscope.files.sealed_parquet import made_from
from anchorscope.fingerprint import fingerprint, read_sources


def usable_cores() -> int:
    """How many cores this process may run on. A scheduler or a container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above zero")
    return int(text)


def known_knockout(name: str) -> str:
    if not is_knockout(name):
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(CONTROLS)} and not of the form {EXACT}_w4")
    return name


def add_command(commands: argparse._SubParsersAction, name: str, what: str) -> argparse.ArgumentParser:
    """A command with the options that both have."""
    command = commands.add_parser(
        name, help=what, description=what, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    command.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    command.add_argument("--threads", type=at_least_one, default=usable_cores(), help="CPU threads")
    command.add_argument(
        "--batch-tokens", type=at_least_one, help="tokens computed together; by default as many as suit the device"
    )
    command.add_argument("--log", type=Path, default=os.devnull, help="a file for the log")
    return command


def add_extract(commands: argparse._SubParsersAction) -> None:
    command = add_command(
        commands, "extract", "Extract clean and knocked-out activations of a shard's chosen examples."
    )
    command.add_argument("manifest", type=Path, help="results/models/{model}.json")
    command.add_argument("chosen", type=Path, help="results/chosen/{model}/{dataset}/{shard}.parquet")
    command.add_argument("output", type=Path, help="the folder of activations to write")
    for name, known in (("components", COMPONENTS), ("positions", POSITIONS)):
        command.add_argument(
            f"--{name}", nargs="+", choices=known, default=getattr(HEADLINE, name), help="what is kept of every example"
        )
    command.add_argument(
        "--knockout",
        type=known_knockout,
        default=EXACT,
        help=f"what is cut, one of {', '.join(CONTROLS)}, or {EXACT}_w4 to cut in 4 layers up to the one read",
    )
    command.set_defaults(run=extract_command)


def add_score(commands: argparse._SubParsersAction) -> None:
    command = add_command(commands, "score", "Say how likely answers are hallucinated, one line of JSON for each.")
    command.add_argument("--detector", type=Path, required=True, help="results/detectors/{model}.safetensors")
    command.add_argument(
        "--model", type=Path, required=True, help="results/models/{model}.json, or a folder with safetensors"
    )
    command.add_argument("--output", type=Path, help="a file for the scores, in place of the standard output")
    command.add_argument(
        "questions",
        help=f"lines such as {EXAMPLE_LINE}, - for standard input, or a .csv",
    )
    command.set_defaults(run=score_command)


def extract_command(options: argparse.Namespace) -> None:
    made = made_from(options.chosen)
    if made["stage"] != "choose":
        raise ValueError(f"{options.chosen} has no chosen examples; name a file of results/chosen.")
    extract_file(
        options.chosen,
        manifest=options.manifest,
        folder=options.output,
        settings=ExtractSettings(
            prompts=PromptSet.bundled(made["prompts"]["style"]),
            grid=Grid.of(options.components, options.positions),
            dtype=options.dtype,
            threads=options.threads,
            batch_tokens=options.batch_tokens,
            knockout=options.knockout,
            code=fingerprint(Path(__file__), read_sources([])),
        ),
    )


def score_command(options: argparse.Namespace) -> None:
    score_file(
        options.questions,
        options.detector,
        options.model,
        target=options.output,
        dtype=options.dtype,
        threads=options.threads,
        batch_tokens=options.batch_tokens,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m anchorscope")
    commands = parser.add_subparsers(required=True)
    add_extract(commands)
    add_score(commands)
    options = parser.parse_args()
    configure_logging(options.log)
    options.run(options)
