"""`python -m anchorscope`: the extract stage alone, for a GPU node without the workflow engine."""

import argparse
import os
from pathlib import Path

from anchorscope.answer.prompts import PromptSet
from anchorscope.extract.axes import COMPONENTS, CONTROLS, EXACT, HEADLINE, POSITIONS, Grid, window_of
from anchorscope.extract.job import ExtractSettings, extract_file
from anchorscope.files.logs import configure_logging
from anchorscope.files.sealed_parquet import made_from
from anchorscope.fingerprint import fingerprint, read_sources


def usable_cores() -> int:
    """How many cores this process may run on. A scheduler or a container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def known_knockout(name: str) -> str:
    if name not in CONTROLS and not window_of(name):
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(CONTROLS)} and not of the form {EXACT}_w4")
    return name


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m anchorscope",
        description="Extract clean and knocked-out activations for a file of answers.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("manifest", type=Path, help="results/models/{model}.json")
    parser.add_argument("answers", type=Path, help="results/answers/{model}/{dataset}/{shard}.parquet")
    parser.add_argument("output", type=Path, help="the folder of activations to write")
    for name, known in (("components", COMPONENTS), ("positions", POSITIONS)):
        parser.add_argument(
            f"--{name}", nargs="+", choices=known, default=getattr(HEADLINE, name), help="what is kept of every example"
        )
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"], default="auto")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="CPU threads")
    parser.add_argument(
        "--batch-tokens", type=int, help="tokens computed together; by default as many as suit the device"
    )
    parser.add_argument("--all", action="store_true", help="keep all examples, not as many right as wrong ones")
    parser.add_argument("--seed", type=int, default=0, help="draws the balanced examples")
    parser.add_argument(
        "--knockout",
        type=known_knockout,
        default=EXACT,
        help=f"what is cut, one of {', '.join(CONTROLS)}, or {EXACT}_w4 to cut in 4 layers up to the one read",
    )
    parser.add_argument("--log", type=Path, default=os.devnull, help="a file for the log")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse()
    configure_logging(options.log)
    settings = ExtractSettings(
        prompts=PromptSet.bundled(made_from(options.answers)["prompt"]["style"]),
        grid=Grid.of(options.components, options.positions),
        dtype=options.dtype,
        threads=options.threads,
        batch_tokens=options.batch_tokens,
        balance=not options.all,
        seed=options.seed,
        knockout=options.knockout,
        code=fingerprint(Path(__file__), read_sources([])),
    )
    extract_file(answers=options.answers, manifest=options.manifest, folder=options.output, settings=settings)
