"""`anchorscope needs`: what a run of a model takes, and what this machine lacks for it."""

import argparse
from pathlib import Path

from anchorscope.files.bundled import RESOURCES

SHIPPED = {
    path.stem: path for path in sorted((RESOURCES / "shapes").glob("*.json"))
}  # configs that come with Anchorscope


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help=f"a model's config.json, or one of {', '.join(SHIPPED)}"
    )


def run(options: argparse.Namespace) -> None:
    for model in options.models:
        if model not in SHIPPED and not Path(model).exists():
            raise ValueError(f"{model} is no file, and none of {', '.join(SHIPPED)}; name a model's config.json.")
    from anchorscope.needs import print_needs

    print_needs([SHIPPED.get(model, Path(model)) for model in options.models])
