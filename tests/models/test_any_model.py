"""Whatever a model's folder holds: it is loaded with the weights of its files, or one sentence says why not."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import strategies as st
from safetensors.torch import load_file

from anchorscope.answer.answers import answer_questions
from anchorscope.answer.prompts import PromptSet
from anchorscope.engine.door import Engine
from anchorscope.models.describe import describe
from anchorscope.models.fetch import fetch
from anchorscope.models.loading import load_fetched_tokenizer, load_model
from mutations import changed, sentence_of, spoilt, sweep, write
from small_things import small_tokenizer, tiny_model

QUESTIONS = [{"id": "q", "question": "who wrote emma", "gold": ["Jane Austen"], "subject": None, "spans": []}]
Spoil = Callable[[Path], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """A small Llama in several files, as a hub would have it."""
    folder = tmp_path_factory.mktemp("good")
    tokenizer = small_tokenizer()
    model = tiny_model("llama", len(tokenizer), layers=2)
    model.config.max_position_embeddings = 4096
    model.save_pretrained(folder, max_shard_size="40KB")
    tokenizer.save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 1
    return folder


def spoiled_file(file: Path) -> st.SearchStrategy[Spoil]:
    """Ways to spoil one file: its bytes, its values, or the file as a whole."""
    data, name = file.read_bytes(), file.name

    def put(content: bytes) -> Spoil:
        return lambda folder: write(folder / name, content)

    ways = [
        spoilt(data).map(put),
        st.sampled_from(["gone", "loop", "fifo", "folder", "device", "swap"]).map(replaced(name)),
    ]
    if file.suffix == ".json":
        ways += [changed(json.loads(data)).map(lambda tree: put(json.dumps(tree).encode()))] * 3
    return st.one_of(ways)


def replaced(name: str) -> Callable[[str], Spoil]:
    """Something else in a file's place."""

    def by(what: str) -> Spoil:
        def spoil(folder: Path) -> None:
            (folder / name).unlink()
            if what == "loop":
                (folder / name).symlink_to(name)
            elif what == "fifo":
                os.mkfifo(folder / name)
            elif what == "folder":
                (folder / name).mkdir()
            elif what == "device":
                (folder / name).symlink_to("/dev/zero")
            elif what == "swap":
                shutil.copyfile(sorted(folder.glob("*.json"))[0], folder / name)

        return spoil

    return by


@pytest.mark.parametrize("cases", [25, pytest.param(2000, marks=pytest.mark.slow)])
def test_any_model_is_loaded_rightly_or_refused_in_a_sentence(cases, good, tmp_path):
    files = sorted(good.iterdir())
    folder, target = tmp_path / "mine", tmp_path / "fetched"

    def judge(case: tuple[Spoil, str]) -> bool:
        spoil, style = case
        for path in (folder, target, tmp_path / ".hashes"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(good, folder)
        spoil(folder)
        try:
            fetch({"path": str(folder)}, target)
            manifest = describe(target, name="mine", source={"path": str(folder)})
            tokenizer = load_fetched_tokenizer(manifest)
            prompt = PromptSet.bundled(style).built(tokenizer)["first"]
            model = load_model(manifest, "float32", threads=1)
            answers = [answer_questions(Engine(model), tokenizer, prompt, QUESTIONS, 4) for _ in range(2)]
        except Exception as error:
            sentence_of(error, ("mine", "model's", "This llama model"))
            return False
        assert answers[0].equals(answers[1])
        check_weights(model, folder)
        return True

    inputs = st.tuples(st.sampled_from(files).flatmap(spoiled_file), st.sampled_from(["few_shot", "chat"]))
    found = sweep(cases, inputs, judge)
    assert min(found["accepted"], found["refused"]) > cases / 20


def check_weights(model, folder: Path) -> None:
    """Every weight is that of the files, as safetensors reads them."""
    plain = {name: value for file in folder.glob("*.safetensors") for name, value in load_file(file).items()}
    embeddings = model.get_input_embeddings().weight
    for name, value in model.named_parameters():
        found = plain.get(name)
        assert found is not None or value.data_ptr() == embeddings.data_ptr(), name
        assert found is None or found.float().equal(value), name
