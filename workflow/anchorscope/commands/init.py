"""`anchorscope init`: a folder to run in, with a config to edit."""

import argparse
import shutil
from pathlib import Path

from anchorscope.files.bundled import ROOT

CONFIG = "config.yaml"
SCHEMA = Path("workflow", "schemas", "config.schema.yaml")  # to which configs refer
QUESTIONS = "questions.jsonl"  # of the config that has questions of one's own
PROFILES = Path("workflow") / "profiles"  # by this name, as a profile names its own scripts


def configs() -> dict[str, Path]:
    """The configs that a run can begin with, by name."""
    return {"default": ROOT / CONFIG} | {path.stem: path for path in sorted((ROOT / "config").glob("*.yaml"))}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="where the run will be; made if it is not there")
    parser.add_argument("--from", dest="start", choices=configs(), default="default", help="the config to begin with")
    parser.add_argument("--cluster", action="store_true", help="also copy the profiles for Slurm, to be edited")


def run(options: argparse.Namespace) -> None:
    chosen = configs()[options.start]
    beside = chosen.with_suffix(".jsonl")
    copies = {CONFIG: chosen} | ({QUESTIONS: beside} if beside.exists() else {})
    if options.cluster:
        copies |= {str(PROFILES): ROOT / PROFILES}
    for name in copies:
        if (options.folder / name).exists():
            raise ValueError(f"{options.folder / name} is there already; name another folder, or remove it first.")
    try:
        for name, source in copies.items():
            target = options.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                text = source.read_text(encoding="utf-8").replace(SCHEMA.as_posix(), str(ROOT / SCHEMA))
                target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{options.folder} cannot be written: {error.strerror}.") from error
    print(f"Wrote {' and '.join(str(options.folder / name) for name in copies)}. Next:")
    print("".join(f"  {line}\n" for line in _next_steps(options)), end="")


def _next_steps(options: argparse.Namespace) -> list[str]:
    enter = [] if options.folder.resolve() == Path.cwd() else [f"cd {options.folder}"]
    profile = f" -- --workflow-profile {PROFILES / 'slurm'}" if options.cluster else ""
    return [*enter, f"anchorscope run{profile}"]
