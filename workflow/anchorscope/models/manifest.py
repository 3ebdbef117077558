"""A model's manifest: what later stages need to know about it, and what their outputs are traced back to.

With it, what tells whether a model is still the same: its source in the config, the revision of its weights and a hash
of its tokenizer.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anchorscope.files.atomic import write_text
from anchorscope.files.bundled import run_command
from anchorscope.files.identity import (
    canonical_json,
    file_identity,
    folder_identity,
    gguf_file,
    hash_of,
    read_json,
    sha256_of_file,
    sha256_of_files,
    tokenizer_beside,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase  # which drawing, and the start of a workflow, do not need

MANY_SCRIPTS = """Who wrote  Émile in 1762?
\tIt's ROUSSEAU’s; “naïve” straße, İstanbul, 東京タワー, मुंबई, ١٢٣, ﬁn 😀\r\n  x_1 = [3.14]\u200b """
SALMON = "+salmon"  # ends the name of a trained model's twin with random weights


@dataclass(frozen=True)
class Manifest:
    """One model, as results/models/{model}.json describes it."""

    name: str  # as in the config
    source: dict  # as in the config
    path: str  # the folder with its files
    weights: str  # trained or random
    revision: str  # what fixes the weights
    architecture: str
    parameters: int
    layers: int
    width: int
    stored_dtype: str
    tokenizer: str  # a hash of it
    prompt: str  # the style that suits it, chat or few_shot; taken with `prompt: auto`

    @classmethod
    def read(cls, path: Path | str) -> "Manifest":
        """A manifest whose `path` is found from here, wherever the run's folder is."""
        try:
            found = cls(**read_json(path))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is not a model's manifest, such as results/models/mine.json.") from error
        of_run = Path(path).resolve().parents[2:3]  # results/models lie in it
        there = next((folder / found.path for folder in of_run), Path(found.path))
        if there.exists() and not (Path(found.path).exists() and there.samefile(found.path)):
            return replace(found, path=str(there))
        return found

    def write(self, target: Path | str) -> None:
        write_text(target, json.dumps(self.as_json(), indent=2, sort_keys=True) + "\n")

    def as_json(self) -> dict:
        """What the file holds, and what every output made with the model repeats."""
        return asdict(self)


def salmon_of(trained: Manifest) -> Manifest:
    """The dead salmon, what a model of the same shape shows if it has learnt nothing: the same config and tokenizer.

    It is given the trained model's answers and labels, so that only the weights differ.
    """
    folder = Path(trained.path)
    source = {"random": {"config": str(folder / "config.json"), "seed": 0}}
    return replace(
        trained,
        name=f"{trained.name}{SALMON}",
        source=source,
        weights="random",
        revision=revision_of(folder, source),
    )


def source_of(model: Mapping) -> dict:
    """Where a model comes from, of all that the config says of it, and the half precision to unpack a GGUF file to."""
    source = {key: model[key] for key in ("hub", "revision", "path", "gguf", "random") if key in model}
    in_half = gguf_file(source) and model.get("dtype") in ("bfloat16", "float16")
    return {**source, "dtype": model["dtype"]} if in_half else source


def identity_of(source: dict) -> str:
    """What identifies a model: its source and files; for random weights the files' contents, wherever they are."""
    if "random" in source:
        config = source["random"]["config"]
        files = [sha256_of_file(file) for file in [config, *tokenizer_beside(config)]]
        return canonical_json([files, source["random"]["seed"]])
    if gguf := gguf_file(source):
        return canonical_json([source, file_identity(gguf)])
    if "path" in source:
        return canonical_json([source, folder_identity(source["path"])])
    return canonical_json(source)


def revision_of(folder: Path, source: dict) -> str:
    """What fixes the weights: the hub's commit, their hash, or a hash of the config and seed they are drawn from."""
    if "hub" in source:
        return source["revision"]
    if "folder" in source:  # used where it lies, and nothing is traced back to it
        return ""
    if "random" in source:
        return hash_of({"config": read_json(folder / "config.json"), "seed": source["random"]["seed"]})
    found = sha256_of_files(list(folder.glob("*.safetensors")), remembered=hashes_of(folder))
    return hash_of({file.name: digest for file, digest in found.items()})


def hashes_of(folder: Path) -> Path:
    """The file that remembers the hashes of a folder's weights, so that unchanged ones are read only once.

    It is not an output: Snakemake deletes those before a job, and the next job needs it.
    """
    return folder.parent / ".hashes" / f"{folder.name}.json"


def tokenizer_hash(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What the tokenizer makes of texts: all its tokens and merges, and what it reads in a text of many scripts.

    Not how it is written down: versions of a library describe the same tokenizer in different ways, and results travel
    between machines.
    """
    backend = tokenizer.backend_tokenizer
    model = json.loads(backend.to_str())["model"]
    added = {number: token.content for number, token in backend.get_added_tokens_decoder().items()}
    return hash_of([model["vocab"], model.get("merges"), added, backend.encode(MANY_SCRIPTS).ids])


def check_unchanged(manifest: Manifest) -> None:
    """Refuse weights that changed after they were fetched: results would carry the revision of others."""
    now = revision_of(Path(manifest.path), manifest.source)
    check_same(manifest, "weights", then=manifest.revision, now=now)


def check_same(manifest: Manifest, what: str, then: str, now: str) -> None:
    """Refuse weights or a tokenizer with another revision or hash than the manifest's."""
    if then != now:
        raise ValueError(
            f"The {what} of {manifest.name} changed after it was fetched ({then} then, {now} now); "
            f"run `{run_command('--force', f'results/models/{manifest.name}.json')}` with the same config."
        )
