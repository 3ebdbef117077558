"""What the commands that run a model share."""

import argparse
import os
from pathlib import Path


def usable_cores() -> int:
    """How many cores this process may run on. A scheduler or a container may allow fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above zero")
    return int(text)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    dtypes = ["auto", "float32", "bfloat16", "float16"]
    parser.add_argument(
        "--dtype", choices=dtypes, default="auto", help="what it computes in; by default what suits the device"
    )
    parser.add_argument("--threads", type=at_least_one, default=usable_cores(), help="by default %(default)s")
    parser.add_argument(
        "--batch-tokens", type=at_least_one, help="tokens computed together; by default as many as suit the device"
    )
    parser.add_argument("--log", type=Path, default=os.devnull, help="a file for the log, by default none")
