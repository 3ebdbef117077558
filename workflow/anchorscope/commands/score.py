"""`anchorscope score`: how likely answers are hallucinated."""

import argparse
from pathlib import Path

from anchorscope.commands.models import add_model_arguments
from anchorscope.detect.score_file import EXAMPLE_LINE, score_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--detector", type=Path, required=True, help="results/detectors/{model}.safetensors")
    parser.add_argument(
        "--model", type=Path, required=True, help="results/models/{model}.json, or a folder with safetensors"
    )
    parser.add_argument("--output", type=Path, help="a file for the scores, in place of the standard output")
    parser.add_argument("answers", help=f"lines such as {EXAMPLE_LINE}, - for standard input, or a .csv")


def run(options: argparse.Namespace) -> None:
    from anchorscope import job

    job.begin(options.log)
    score_file(
        options.answers,
        options.detector,
        options.model,
        target=options.output,
        dtype=options.dtype,
        threads=options.threads,
        batch_tokens=options.batch_tokens,
    )
