"""However `api` is called: what comes back is what its page says, or one sentence says what is wrong with the call."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.figure import Figure
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope import api
from anchorscope.detect.detector import Detector
from anchorscope.detect.detector_file import write_detector
from anchorscope.extract.axes import COMPONENTS, CONTROLS, HEADLINE, POSITIONS, Grid, knockouts_of
from anchorscope.extract.store import ActivationReader
from anchorscope.files.frames import write_frame
from anchorscope.models.manifest import tokenizer_hash
from anchorscope.probe.anchor_rules import PROBES
from anchorscope.probe.delta import measure
from anchorscope.summarise.run_folder import SUMMARY_COLUMNS
from mutations import KEYS, changed, check_refusal, spoilt, sweep, values, write
from planted_detector import LAYERS, about, probes
from small_things import small_tokenizer, tiny_model

ANY = values(KEYS) | st.sampled_from([b"bytes", (), {1, 2}, 3.5])
FOREIGN = ("notes.txt", "resid.answer_last.mine.parquet", "results.parquet", "more/resid.answer_last.parquet")
QUESTIONS = [f"who wrote book {number} of the {word}" for number in range(40) for word in ("river", "king")]
Call = tuple[str, dict]


@dataclass(frozen=True)
class Things:
    """What calls are about: a model in hand, and what `api` made of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    examples: list[dict]
    summary: pl.DataFrame
    folder: Path  # with the folder `activations`, the detector, the summary and the probes in it


@pytest.fixture(scope="module")
def things(tmp_path_factory) -> Things:
    folder = tmp_path_factory.mktemp("things")
    tokenizer = small_tokenizer()
    model = tiny_model("llama", len(tokenizer), layers=LAYERS)
    asked = [{"question": question, "answers": ["x"]} for question in QUESTIONS]
    said = api.extract(model, tokenizer, asked, folder / "first", prompt="few_shot").to_dicts()
    examples = [
        {"question": row["question"], "answers": [row["exact_answer"] if index % 2 else "nothing of it"]}
        for index, row in enumerate(said)
        if not row["refused"]
    ]
    api.extract(model, tokenizer, examples, folder / "activations", prompt="few_shot")
    summary = api.summarise(folder / "activations", bootstrap_draws=100)
    write_frame(folder / "summary.parquet", summary, {})
    measured = measure(ActivationReader([folder / "activations"]), folds=3, repeats=1, seed=0, where="here")
    write_frame(folder / "probes.parquet", measured.probes[0], {})
    write_detector(folder / "tiny.safetensors", probes(), about(tokenizer_hash(tokenizer)), {})
    return Things(model, tokenizer, examples, summary, folder)


def calls(valid: dict[str, st.SearchStrategy], needed: tuple[str, ...] = ()) -> st.SearchStrategy[dict]:
    """Arguments: `needed` ones, and some of the others. Now and then one of them is anything."""

    def broken(given: dict) -> st.SearchStrategy[dict]:
        if not given:
            return st.just(given)
        one = st.tuples(st.sampled_from(sorted(given)), ANY)
        return st.one_of([st.just(given)] * 3 + [one.map(lambda pair: given | dict([pair]))])

    others = sorted(set(valid) - set(needed))
    few = st.lists(st.sampled_from(others), max_size=3, unique=True) if others else st.just([])
    chosen = few.flatmap(lambda names: st.fixed_dictionaries({name: valid[name] for name in (*needed, *names)}))
    return chosen.flatmap(broken)


def some_of(names: list[str] | tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, unique=True)


def extractions(things: Things) -> st.SearchStrategy[dict]:
    few = st.lists(st.sampled_from(things.examples), max_size=6)
    arguments = {
        "examples": st.one_of(few, few, few.flatmap(changed)),
        "folder": st.just("asked"),
        "components": some_of(COMPONENTS),
        "positions": some_of(POSITIONS),
        "prompt": st.sampled_from(["few_shot", "chat", "auto", "auto", "none"]),
        "balance": st.sampled_from([True, False, "property", "form", "subject"]),
        "seed": st.integers(-3, 2**40),
        "interventions": some_of([*CONTROLS, "subject"]),
        "windows": st.lists(st.integers(0, 9), max_size=2),
        "batch_tokens": st.sampled_from([None, 1, 64, 2048, 0, -5]),
    }
    return calls(arguments, needed=("examples", "folder"))


def summaries(things: Things) -> st.SearchStrategy[dict]:
    folder = things.folder / "activations"
    places = [folder, str(folder), [folder], (folder,), [folder, folder], [], things.folder, "gone", folder / "x"]
    arguments = {
        "activations": st.sampled_from(places),
        "model": st.sampled_from(["mine", "", "a/b", "é"]),
        "dataset": st.sampled_from(["theirs", "questions"]),
        "folds": st.integers(0, 12),
        "repeats": st.integers(0, 2),
        "bootstrap_draws": st.sampled_from([0, 10, 100, 100, 100]),
        "seed": st.integers(-3, 2**40),
    }
    return calls(arguments, needed=("activations", "bootstrap_draws"))


def drawings() -> st.SearchStrategy[dict]:
    arguments = {
        "models": st.sampled_from([None, ["model"], {"model": "My $model$"}, ["gone"], [], "model", ["model"] * 2]),
        "datasets": st.sampled_from([None, ["questions"], {"questions": "Q"}, ["gone"], [], "questions"]),
        "rule": st.sampled_from(["flip", "fixed", "crossfit", "honest", "none"]),
        "intervention": st.sampled_from(["exact_question", "random_question", "subject"]),
        "logits": st.sampled_from(["measured", "recentred", "residual", "none"]),
        "quantity": st.sampled_from(["delta_p", "delta_logit", "p"]),
        "component": st.sampled_from(COMPONENTS),
        "position": st.sampled_from(POSITIONS),
        "note": st.text(max_size=30),
        "style": st.sampled_from([None, "ggplot", "gone", "/dev/null", "/dev/zero", Path("gone.mplstyle")]),
    }
    return calls(arguments)


def scorings() -> st.SearchStrategy[dict]:
    texts = st.lists(
        st.sampled_from(["who wrote emma", "Jane", "", " ", "</s>", "no\0", "é" * 400]) | st.text(max_size=9)
    )
    pairs = st.lists(st.tuples(st.sampled_from(QUESTIONS), st.sampled_from(["Jane Austen", "", "me"])), max_size=4)
    arguments = {"batch_tokens": st.sampled_from([None, 1, 64, 0, -5]), "layer": st.integers(-2, LAYERS + 1)}
    of_pairs = pairs.map(lambda some: {"questions": [one for one, _ in some], "answers": [one for _, one in some]})
    of_texts = calls({"questions": texts, "answers": texts}, needed=("questions", "answers"))
    return st.tuples(of_pairs | of_pairs | of_texts, calls(arguments)).map(lambda both: both[0] | both[1])


def files_of(whole: Path) -> st.SearchStrategy[dict]:
    """A path to a file: whole, spoilt, or something else."""
    spoil = spoilt(whole.read_bytes()).map(lambda data: {"data": data})
    others = st.sampled_from([whole, str(whole), whole.parent, "gone", "/dev/zero", "x" * 5000, "a\0b", whole / "x"])
    return st.one_of(spoil, others.map(lambda path: {"path": path}), ANY.map(lambda path: {"path": path}))


def any_call(things: Things) -> st.SearchStrategy[Call]:
    kinds = {
        "extract": extractions(things),
        "summarise": summaries(things),
        "plot_family": drawings(),
        "score": scorings(),
        "load_summary": files_of(things.folder / "summary.parquet"),
        "load_detector": files_of(things.folder / "tiny.safetensors"),
        "load_probes": files_of(things.folder / "probes.parquet"),
    }
    return st.sampled_from(sorted(kinds)).flatmap(lambda name: st.tuples(st.just(name), kinds[name]))


def hashes(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FOREIGN}


def extract(things: Things, given: dict, folder: Path) -> None:
    """Into a folder with files that are not ours."""
    target = folder / "asked"
    for name in FOREIGN:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(f"my own {name}")
    before = hashes(target)
    try:
        answers = api.extract(things.model, things.tokenizer, **given)
    finally:
        assert hashes(target) == before
    grid = Grid.of(given.get("components", HEADLINE.components), given.get("positions", HEADLINE.positions))
    reader = ActivationReader([target])
    assert (reader.grid, reader.layers) == (grid, LAYERS)
    assert set(reader.knockouts) == set(knockouts_of(given.get("interventions", ()), set(given.get("windows", ()))))
    assert set(answers["question"]) <= {example["question"] for example in given["examples"]}
    assert len(reader.keys) <= len(answers)


def summarise(things: Things, given: dict, folder: Path) -> None:
    summary = api.summarise(**given)
    assert set(SUMMARY_COLUMNS) <= set(summary.columns)
    assert summary["model"].unique().to_list() == [given.get("model", "model")]
    assert summary["dataset"].unique().to_list() == [given.get("dataset", "questions")]
    assert summary["delta_p"].drop_nulls().is_finite().all()
    assert summary["layer"].n_unique() == LAYERS


def plot_family(things: Things, given: dict, folder: Path) -> None:
    figure = api.plot_family(things.summary, **given)
    assert isinstance(figure, Figure)
    assert len(figure.axes) == 1
    assert not pyplot.get_fignums()


def score(things: Things, given: dict, folder: Path) -> None:
    detector = api.load_detector(things.folder / "tiny.safetensors")
    scores = detector.score(things.model, things.tokenizer, **given)
    assert scores.shape == (len(given["answers"]),)
    assert ((scores >= 0) & (scores <= 1) | np.isnan(scores)).all()


def named(given: dict, folder: Path) -> object:
    return write(folder / "mine.parquet", given["data"]) if "data" in given else given["path"]


def load_summary(things: Things, given: dict, folder: Path) -> None:
    assert api.load_summary(named(given, folder)).equals(things.summary)


def load_detector(things: Things, given: dict, folder: Path) -> None:
    assert isinstance(api.load_detector(named(given, folder)), Detector)


def load_probes(things: Things, given: dict, folder: Path) -> None:
    kept = api.load_probes(named(given, folder))
    assert (kept.component, kept.position) == HEADLINE.places()[0]
    assert {name: weight.shape[:3] for name, weight in kept.weight.items()} == {
        probe.name: (1, LAYERS, 3) for probe in PROBES
    }


CALLS: dict[str, Callable[[Things, dict, Path], None]] = {
    "extract": extract,
    "summarise": summarise,
    "plot_family": plot_family,
    "score": score,
    "load_summary": load_summary,
    "load_detector": load_detector,
    "load_probes": load_probes,
}


@pytest.mark.parametrize("cases", [10, pytest.param(2000, marks=pytest.mark.slow)])
def test_any_call_gives_what_is_documented_or_a_sentence(cases, things, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def judge(call: Call) -> bool:
        name, given = call
        shutil.rmtree(tmp_path / "asked", ignore_errors=True)
        try:
            CALLS[name](things, given, tmp_path)
        except AssertionError:
            raise
        except Exception as error:
            check_refusal(error)
            return False
        return True

    found = sweep(cases, any_call(things), judge)
    assert min(found["accepted"], found["refused"]) > cases / 20
