"""Config files before Snakemake reads them: what it cannot read, or would never finish reading, is one sentence.

And a folder for Snakemake's cache, which it makes before it reads anything.
"""

import argparse
import math
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import yaml

from anchorscope.files.faults import fault_of_file, reason_of

LARGEST = 500_000  # bytes, which take Snakemake seconds; config/paper.yaml has 5,000
MOST_PARTS = 100_000  # keys and values of a config with every alias written out


def refuse_files_of_command() -> None:
    """Stop if a config that this Snakemake was given with `--configfile` cannot be read.

    The profiles call this: Snakemake reads those files before it reads the Snakefile.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)  # --config is another option
    parser.add_argument("--configfile", "--configfiles", nargs="+", action="extend", default=[])
    refuse_files(parser.parse_known_args()[0].configfile)


def find_room_for_cache() -> None:
    """Let Snakemake keep its cache below this folder where it could not write to its own, which is in the user's home.

    The profiles call this: otherwise Snakemake ends in a traceback.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if not cache.is_dir() or not os.access(cache, os.W_OK):
        os.environ["XDG_CACHE_HOME"] = str(Path(".snakemake/cache").absolute())


def refuse_files(files: Iterable[Path | str]) -> None:
    """Stop if a config cannot be read."""
    stop_at([sentence for file in files for sentence in file_mistakes(file)])


def stop_at(sentences: list[str]) -> None:
    """End with the mistakes that were found, if any."""
    if sentences:
        # Not a WorkflowError: Snakemake would print a file and line of the rules after it.
        sys.exit("The config cannot be run:\n" + "\n".join(f"  {sentence}" for sentence in sentences))


def file_mistakes(file: Path | str) -> list[str]:
    """A sentence for each reason not to read a config file; empty if it can be read."""
    if not os.path.lexists(file):
        return [f"{file} does not exist; it was looked for in {Path(file).absolute().parent}."]
    fault = fault_of_file(file, LARGEST)
    if fault:
        return [f"{file} {fault}."]
    data = Path(file).read_bytes()
    try:
        text = data.decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            return [f"{file} holds no keys; begin with a copy of config.yaml."]
        known: dict[yaml.Node, float] = {}
        if _parts(root, known) > MOST_PARTS:
            return [f"{file} has aliases (*) that stand for too much, or for a part they stand in; write them out."]
        yaml.safe_load(text)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        return [f"{file} is not UTF-8, as its line {line} shows; save it in that encoding."]
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a ValueError: 2024-13-45 looks like a date
        reason = (
            f"line {error.problem_mark.line + 1}, {error.problem}"
            if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark
            else reason_of(error)
        )
        return [f"{file} cannot be read as YAML: {reason}."]
    return _repeated_keys(known, file)


def _parts(node: yaml.Node, known: dict[yaml.Node, float]) -> float:
    """How many parts a node has with every alias written out: endlessly many if it stands in itself.

    PyYAML has no limit of its own. `known` keeps the count of every node below.
    """
    if node not in known:
        known[node] = math.inf
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        children = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in pairs for part in pair]
        known[node] = 1 + sum(_parts(child, known) for child in children)
    return known[node]


def _repeated_keys(parts: Iterable[yaml.Node], file: Path | str) -> list[str]:
    """A sentence for each key that stands twice in the same part of a YAML file: the first would be lost in silence."""
    sentences = []
    for part in parts:
        if isinstance(part, yaml.MappingNode):
            names = [key.value for key, _ in part.value if isinstance(key, yaml.ScalarNode)]
            for name in dict.fromkeys(name for name in names if names.count(name) > 1 and name != "<<"):
                lines = [str(key.start_mark.line + 1) for key, _ in part.value if key.value == name]
                sentences.append(f"{file} has the key {name!r} twice, in lines {' and '.join(lines)}; keep one.")
    return sentences
