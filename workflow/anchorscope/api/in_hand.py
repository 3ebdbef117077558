"""The measurement without the workflow, for a model in hand: questions in, activations and a summary out."""

import json
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.answers import MAX_NEW_TOKENS, answer_questions
from anchorscope.answer.prompts import BUNDLED_PROMPTS, PromptSet
from anchorscope.choose.balance import WITHIN, Balance, analysed
from anchorscope.detect.detector import dtype_of
from anchorscope.engine.door import Engine
from anchorscope.extract.axes import (
    COMPONENTS,
    CONTROLS,
    EXACT,
    HEADLINE,
    POSITIONS,
    Grid,
    Headline,
    knockouts_of,
    passes_of,
)
from anchorscope.extract.job import write_activations
from anchorscope.extract.sequences import build_workload, tell_uncut
from anchorscope.extract.store import ActivationReader, file_of, remove_added
from anchorscope.files.arguments import check_choices, check_whole, is_list, is_path, is_text
from anchorscope.files.faults import shortened
from anchorscope.files.identity import read_json
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import made_from
from anchorscope.models.chat_template import prompt_style_of
from anchorscope.models.loading import computed_on
from anchorscope.probe.delta import measure
from anchorscope.probe.examples import enough
from anchorscope.questions.normalize import normalize
from anchorscope.summarise.pair_tables import summary_tables
from anchorscope.summarise.tables import described

GIVEN = "given"  # where weights and questions come from, as far as anyone but the caller knows


def extract(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Iterable[Mapping[str, Any]],
    folder: Path | str,
    *,
    components: Sequence[str] = HEADLINE.components,
    positions: Sequence[str] = HEADLINE.positions,
    prompt: Literal["few_shot", "chat", "auto"] = "auto",
    balance: Balance = True,
    seed: int = 0,
    interventions: Sequence[str] = (EXACT,),
    windows: Sequence[int] = (),
    batch_tokens: int | None = None,
) -> pl.DataFrame:
    """Let a model answer questions, write its clean and knocked-out activations to a folder, and return its answers.

    Each of `examples` has a `question` and `answers`, the list of accepted answers (or `gold`, as in tables). It may
    have a `subject`: questions about one subject stay together in folds and resamples. It may have a `property`, what
    is asked about the subject.
    The model answers greedily under the few-shot prompt or its own chat template; `auto` takes the latter if the model
    is instruction-tuned, and the log says which was taken. `folder` gets a Parquet file for each of the `components`
    (resid, attn, mlp) at each of the `positions` (answer_last, final, before_answer), with the vectors of every layer,
    prompt and intervention; `anchorscope.extract.store.ActivationReader([folder])` reads them. `balance` keeps as many
    right as wrong answers, drawn by `seed`; if it is "property" or "form", within each property or form of question.
    Besides `exact_question`, `interventions` may name subject, property, content and whole_question; each is run with
    its control and has files of its own. For each of the `windows`, the exact question tokens are also cut in that many
    layers up to the one that is read. `batch_tokens` are computed together, by default as many as suit the device.
    Progress is shown on the standard error.
    """
    check_choices("components", components, COMPONENTS, least=1)
    check_choices("positions", positions, POSITIONS, least=1)
    dtype_of(model)
    check_choices("interventions", interventions, tuple(CONTROLS))
    _check(prompt, balance, windows)
    check_whole("seed", seed, least=0)
    if batch_tokens is not None:
        check_whole("batch_tokens", batch_tokens, least=1)
    questions = _questions(examples, seed)
    _make_folder(folder)
    style = prompt_style_of(model, tokenizer) if prompt == "auto" else prompt
    log.info("prompt: %s", style)
    grid, bundled = Grid.of(components, positions), PromptSet.bundled(style)
    prompts = bundled.built(tokenizer)
    engine = Engine(model, batch_tokens)
    answers = answer_questions(engine, tokenizer, prompts["first"], questions.to_dicts(), MAX_NEW_TOKENS)
    kept = analysed(answers, balance, seed)
    made = {"stage": "extract", "model": {"weights": GIVEN}, "prompts": bundled.texts, "computed": computed_on(model)}
    remove_added(folder)
    for knockout in knockouts_of(interventions, windows):
        workload = build_workload(tokenizer, prompts, kept, passes=passes_of(knockout), positions=grid.positions)
        tell_uncut(workload, knockout)
        write_activations(engine, workload, folder, grid=grid, knockout=knockout, made=made)
    return cast(pl.DataFrame, pl.from_arrow(answers))


def _questions(examples: Iterable[Mapping[str, Any]], seed: int) -> pl.DataFrame:
    if not isinstance(examples, Iterable) or isinstance(examples, str | bytes | Mapping):
        raise ValueError(f"examples is {reprlib.repr(examples)}; it must be a list of questions with their answers.")
    rows = [_row(number, example) for number, example in enumerate(examples)]
    raw = pl.DataFrame(rows, schema=dict.fromkeys(("question", "answers", "subject", "property"), pl.String))
    questions, counts = normalize(raw, "own", seed=seed, where="examples")
    log.info("questions: %s", ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return questions


def _row(number: int, example: Mapping[str, Any]) -> dict[str, str | None]:
    if not isinstance(example, Mapping):
        raise ValueError(f"Example {number} is {reprlib.repr(example)}; it must have a question and answers by name.")
    accepted = example.get("answers", example.get("gold"))
    needed = {"question": example.get("question"), "answers": accepted}
    missing = [name for name, given in needed.items() if given is None]
    if missing:
        raise ValueError(f"Example {number} has no {' and no '.join(missing)}.")
    if not is_list(accepted):
        given = "a text" if isinstance(accepted, str) else reprlib.repr(accepted)
        raise ValueError(f"The answers of example {number} are {given}; they must be a list of accepted answers.")
    texts = {name: example.get(name) for name in ("question", "subject", "property")}
    named = [*(("An answer", one) for one in accepted), *((f"The {name}", text) for name, text in texts.items())]
    for what, text in named:
        if text is not None and not is_text(text):
            raise ValueError(f"{what} of example {number} is {reprlib.repr(text)}, not a text.")
    return {"answers": json.dumps(list(accepted)), **texts}


def _check(prompt: str, balance: object, windows: Sequence[int]) -> None:
    if not isinstance(balance, bool) and balance not in tuple(WITHIN):
        raise ValueError(f"balance is {reprlib.repr(balance)}; it must be True, False, 'property' or 'form'.")
    if prompt not in ("auto", *read_json(BUNDLED_PROMPTS)):
        raise ValueError(f"prompt is {reprlib.repr(prompt)}; it must be few_shot, chat or auto.")
    if not is_list(windows) or not all(type(window) is int and window > 0 for window in windows):
        raise ValueError(f"windows is {reprlib.repr(windows)}; it must be a list of numbers of layers.")


def _make_folder(folder: Path | str) -> None:
    if not is_path(folder):
        raise ValueError(f"folder is {reprlib.repr(folder)}; it must be the path of a folder for the activations.")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"The folder {shortened(folder)} cannot be made: {error.strerror}.") from error


def summarise(
    activations: Path | str | Sequence[Path | str],
    *,
    model: str = "model",
    dataset: str = "questions",
    folds: int = 5,
    repeats: int = 3,
    bootstrap_draws: int = 2000,
    seed: int = 0,
) -> pl.DataFrame:
    """Probe every layer and average delta P over each anchor's examples. `plot_family` draws the summary.

    `activations` is the folder that `extract` wrote, or the folders of a workflow's shards. `model` and `dataset` are
    their names in the summary. `polars.concat` puts several summaries together.
    """
    paths = _paths(activations)
    for name, text in (("model", model), ("dataset", dataset)):
        if not is_text(text):
            raise ValueError(f"{name} is {reprlib.repr(text)}; it must be a name.")
    check_whole("folds", folds, least=3, most=20)
    check_whole("repeats", repeats, least=1, most=20)
    check_whole("bootstrap_draws", bootstrap_draws, least=100)
    check_whole("seed", seed, least=0)
    if len({Path(path).resolve() for path in paths}) < len(paths):
        raise ValueError("A folder of activations is named twice; its examples would count twice.")
    reader = ActivationReader(paths)
    headline = reader.grid.places()[0]
    measured = measure(reader, folds=folds, repeats=repeats, seed=seed, where=f"{model} on {dataset}")
    delta, layers, *_ = enough(measured)
    summary = summary_tables(delta, layers, Headline(*headline), bootstrap_draws=bootstrap_draws, seed=seed)["summary"]
    weights = made_from(file_of(paths[0], *headline))["model"]["weights"]
    return described(summary, model=model, weights=weights, dataset=dataset, source=GIVEN)


def _paths(activations: Any) -> list[Path | str]:
    """The folders of activations, of which there is at least one."""
    paths = list(activations) if is_list(activations) else [activations]
    if not paths or not all(map(is_path, paths)):
        raise ValueError(
            f"activations is {reprlib.repr(activations)}; it must be a folder that `extract` wrote, or a list of them."
        )
    return paths
