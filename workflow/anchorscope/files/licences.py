"""Under which licence a model's weights or a dataset's questions stand, by the word of whoever publishes them.

A run never fails for want of it: what cannot be found out is not stated.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from anchorscope.files.faults import fault_of_file, shortened
from anchorscope.files.identity import gguf_file
from anchorscope.files.logs import log

NOT_STATED = "not stated"
OWN_LICENCE = "Apache-2.0"  # of this project, and so of the bundled questions
LONGEST_CARD = 2**20  # bytes
LONGEST_NAME = 100  # characters
FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---", re.S)


def licence_of(source: Mapping) -> str:
    """The licence of a model, by its source in the config, or of a dataset, by its origin."""
    if source.get("source") == "bundled":
        return OWN_LICENCE
    if "random" in source:
        return "none, because weights are drawn"
    try:
        if "hub" in source or "repo" in source:
            return _of_hub(source)
        if file := gguf_file(dict(source)):
            return _of_gguf(file)
        return _of_folder(Path(source["path"])) if "path" in source else NOT_STATED
    except Exception as error:  # whatever a file of others makes a library say
        log.warning("no licence was found for %s: %s", shortened(dict(source)), type(error).__name__)
        return NOT_STATED


def _of_hub(source: Mapping) -> str:
    """From the card at the pinned revision; the client has it in its cache once it was asked for."""
    from huggingface_hub import hf_hub_download  # slow to import

    kind, repo = ("model", source["hub"]) if "hub" in source else ("dataset", source["repo"])
    return _of_card(Path(hf_hub_download(repo, "README.md", repo_type=kind, revision=source["revision"])))


def _of_gguf(file: Path) -> str:
    from anchorscope.files.gguf_reader import FastReader  # only models in this format need the library

    stated = FastReader(file).get_field("general.license")
    return _name(stated.contents()) if stated else NOT_STATED


def _of_folder(folder: Path) -> str:
    """From the card in a folder, or the name of the file that has the licence's text."""
    stated = _of_card(folder / "README.md")
    texts = sorted(file.name for file in folder.iterdir() if re.match("licen[cs]e", file.name, re.I))
    return f"see {_name(texts[0])}" if stated == NOT_STATED and texts else stated


def _of_card(card: Path) -> str:
    """What stands in front of a card; licences that the hub has no word for are there as `other`, with a name."""
    if fault_of_file(card, LONGEST_CARD):
        return NOT_STATED
    import yaml  # which the report, that only lists licences, does without

    front = FRONT_MATTER.match(card.read_text(encoding="utf-8"))
    about = yaml.safe_load(front[1]) if front else None
    if not isinstance(about, dict):
        return NOT_STATED
    licence = about.get("license")
    return _name(about.get("license_name", licence) if licence == "other" else licence)


def _name(stated: object) -> str:
    """A licence's name, or several, on one short line."""
    names = stated if isinstance(stated, list) else [stated]
    texts = [name for name in names if isinstance(name, str) and name.strip()]
    return shortened(", ".join(texts), LONGEST_NAME) if texts and len(texts) == len(names) else NOT_STATED
