"""The command `anchorscope`, and `python -m anchorscope` where nothing is installed."""

import argparse
import sys
from importlib import import_module
from importlib.metadata import version
from typing import NamedTuple


class Command(NamedTuple):
    """One of the words that may follow `anchorscope`."""

    module: str  # of `commands`
    what: str
    example: str


COMMANDS = {
    "init": Command("init", "Begin a run in a folder: write a config to edit.", "anchorscope init mine --from tiny"),
    "run": Command("workflow", "Do the whole run, from config.yaml to figures and report.", "anchorscope run"),
    "detect": Command("workflow", "Also compare methods of detection, and train a detector.", "anchorscope detect"),
    "report": Command("workflow", "Bring results/report.html up to date.", "anchorscope report -- --cores 2"),
    "resume": Command("resume", "Continue a run that was killed.", "anchorscope resume"),
    "compare": Command(
        "compare",
        "Put a run beside the published figures, or another run.",
        "anchorscope compare results other/results",
    ),
    "score": Command(
        "score",
        "Say how likely answers are hallucinated, one line of JSON for each.",
        "anchorscope score --detector results/detectors/smollm2-135m.safetensors "
        "--model results/models/smollm2-135m.json answers.jsonl",
    ),
    "extract": Command(
        "extract",
        "Extract clean and knocked-out activations of a shard's chosen examples.",
        "anchorscope extract results/models/smollm2-135m.json results/chosen/smollm2-135m/nq-mini/0000.parquet nq",
    ),
    "needs": Command(
        "needs", "Say what a run of a model takes, and what this machine lacks.", "anchorscope needs qwen3-8b"
    ),
    "damage": Command(
        "damage", "Read every Parquet file of a folder, and say which are damaged.", "anchorscope damage results"
    ),
}
WIDEST = max(map(len, COMMANDS))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="anchorscope",
        description="See where a language model's truthfulness signal is anchored, layer by layer.",
        epilog="\n".join(
            [
                "commands:",
                *(f"  {name:{WIDEST}}  {command.what}" for name, command in COMMANDS.items()),
                "\nanchorscope COMMAND --help says more about one of them.",
            ]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    parser.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND")
    options = parser.parse_args(sys.argv[1:2])
    if options.version:
        print(version("anchorscope"))
    elif options.command:
        start(options.command, sys.argv[2:])
    else:
        parser.print_help()


def start(name: str, words: list[str]) -> None:
    """Do what a command says, with the words after it."""
    command = COMMANDS[name]
    module = import_module(f"anchorscope.commands.{command.module}")
    parser = argparse.ArgumentParser(
        prog=f"anchorscope {name}", description=command.what, epilog=f"example: {command.example}"
    )
    module.add_arguments(parser)
    options = parser.parse_args(words, argparse.Namespace(command=name))
    try:
        module.run(options)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"anchorscope {name}: {error}")


if __name__ == "__main__":
    main()
