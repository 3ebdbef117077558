"""`anchorscope extract`: extraction alone, for a GPU node without the workflow engine."""

import argparse
from pathlib import Path

from anchorscope.commands.models import add_model_arguments
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, HEADLINE, POSITIONS, Grid, is_knockout


def known_knockout(name: str) -> str:
    if not is_knockout(name):
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(CONTROLS)} and not of the form {EXACT}_w4")
    return name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("manifest", type=Path, help="results/models/{model}.json")
    parser.add_argument("chosen", type=Path, help="results/chosen/{model}/{dataset}/{shard}.parquet")
    parser.add_argument("output", type=Path, help="the folder of activations to write")
    for name, known in (("components", COMPONENTS), ("positions", POSITIONS)):
        default = getattr(HEADLINE, name)
        parser.add_argument(
            f"--{name}",
            nargs="+",
            choices=known,
            default=default,
            help=f"what is kept of every example, by default {' '.join(default)}",
        )
    parser.add_argument(
        "--knockout",
        type=known_knockout,
        default=EXACT,
        help=f"what is cut, one of {', '.join(CONTROLS)}, or {EXACT}_w4 to cut in 4 layers up to the one read; "
        "by default %(default)s",
    )


def run(options: argparse.Namespace) -> None:
    from anchorscope import job
    from anchorscope.answer.prompts import PromptSet
    from anchorscope.extract.job import ExtractSettings, extract_file
    from anchorscope.files.faults import check_file
    from anchorscope.files.sealed_parquet import made_from
    from anchorscope.fingerprint import fingerprint, read_sources

    job.begin(options.log)
    check_file(options.manifest, "name a model's manifest, such as results/models/mine.json")
    check_file(options.chosen, "name a file of results/chosen")
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
