"""Where the files are that come with Anchorscope: around the library in a clone, beside it where it is installed."""

from pathlib import Path

LIBRARY = Path(__file__).resolve().parents[2]  # what holds the package: `workflow` in a clone
INSTALLED = LIBRARY / "anchorscope_workflow"  # where pyproject.toml puts the rest of a clone
IN_CLONE = not INSTALLED.is_dir()
ROOT = LIBRARY.parent if IN_CLONE else INSTALLED
RESOURCES = (LIBRARY if IN_CLONE else INSTALLED / "workflow") / "resources"


def run_command(*words: str) -> str:
    """What a user types to run the workflow with these words; Snakemake finds it by itself in a clone only."""
    if IN_CLONE:
        return " ".join(["snakemake", "--cores", "all", *words])
    return " ".join(["anchorscope", "run", *(["--"] if any(word.startswith("-") for word in words) else []), *words])
