"""The rows of one split of a hub dataset, as its files have them."""

import tempfile
from fnmatch import fnmatch
from pathlib import Path

from datasets import load_dataset
from huggingface_hub import DatasetCard

from anchorscope.files.hub import HubError, download
from anchorscope.files.sealed_parquet import sealed

ROWS = 10_000  # per row group
# How `datasets` reads a file. Only an empty field is null: a band may be called "None".
FILE_READERS = {
    ".parquet": ("parquet", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"keep_default_na": False, "na_values": [""]}),
    ".tsv": ("csv", {"keep_default_na": False, "na_values": [""], "sep": "\t"}),
}


def write_rows(repo: str, revision: str, subset: str | None, split: str, target: Path, metadata: dict[str, str]) -> int:
    """Write a split at a pinned revision as Parquet and return its number of rows. Nothing else is downloaded."""
    card = download("dataset", repo=repo, revision=revision, wanted=["README.md"]) / "README.md"
    configs = DatasetCard.load(card).data.to_dict().get("configs") if card.is_file() else None
    patterns = split_patterns(configs or [], subset=subset, split=split, repo=repo)
    folder = download("dataset", repo=repo, revision=revision, wanted=patterns)
    # By the client's own rules: what was downloaded is what is read.
    names = [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.suffix in FILE_READERS]
    files = sorted(folder / name for name in names if any(fnmatch(name, pattern) for pattern in patterns))
    if not files or len({file.suffix for file in files}) > 1:
        found = ", ".join(file.name for file in files) or "nothing"
        raise HubError(
            f"The files of split '{split}' of {repo} at {revision} cannot be read (looked for {', '.join(patterns)}, "
            f"all of one kind among {', '.join(FILE_READERS)}, and found {found}): check `split` and `subset` in the "
            "config."
        )
    reader, options = FILE_READERS[files[0].suffix]
    # Named like a half-written target, so that it is removed in the same way if the job is killed.
    with tempfile.TemporaryDirectory(".part", ".rows-", target.parent) as scratch:
        rows = load_dataset(
            reader,
            data_files=[str(file) for file in files],
            split="train",
            cache_dir=scratch,
            keep_in_memory=True,  # because the rows outlive the scratch folder
            **options,
        )
        with sealed(target, rows.features.arrow_schema, metadata) as writer:
            for batch in rows.with_format("arrow").iter(ROWS):
                writer.write_table(batch)
    return len(rows)


def split_patterns(configs: list[dict], subset: str | None, split: str, repo: str) -> list[str]:
    """Patterns for the files of a split: from its card's configs, else by the usual names of such files."""
    files = _config_of(subset, configs, repo).get("data_files") if configs else None
    if not isinstance(files, list) or not all(isinstance(entry, dict) for entry in files):
        folder = f"{subset}/" if subset else ""
        return [f"{folder}{split}*", f"{folder}*/{split}*", f"{folder}*[-_.]{split}*"]
    files = {entry["split"]: entry["path"] for entry in files}
    if split not in files:
        raise HubError(f"{repo} has no split '{split}': set `split` in the config to one of {', '.join(files)}.")
    return [files[split]] if isinstance(files[split], str) else list(files[split])


def _config_of(subset: str | None, configs: list[dict], repo: str) -> dict:
    by_name = {config["config_name"]: config for config in configs}
    default = [config for config in configs if config.get("default") or len(configs) == 1]
    if subset is None and default:
        return default[0]
    if subset not in by_name:
        problem = "needs a `subset`" if subset is None else f"has no subset '{subset}'"
        raise HubError(f"{repo} {problem}: set `subset` in the config to one of {', '.join(by_name)}.")
    return by_name[subset]
