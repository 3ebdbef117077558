"""The measurement without the workflow, for a model in hand: questions in, activations and a summary out."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.answers import MAX_NEW_TOKENS, answer_questions
from anchorscope.answer.prompts import BUNDLED_PROMPTS, PromptSet
from anchorscope.engine.self_check import Path as EnginePath
from anchorscope.extract.axes import COMPONENTS, HEADLINE, POSITIONS, Grid, Headline
from anchorscope.extract.run import analysed, path_for, run_workload
from anchorscope.extract.sequences import build_workload
from anchorscope.extract.store import DTYPES, ActivationReader, ActivationWriter, file_of
from anchorscope.files.identity import read_json
from anchorscope.files.logs import log
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.probe.delta import measure
from anchorscope.questions.normalize import normalize
from anchorscope.summarise.estimates import estimate
from anchorscope.summarise.notes import described

GIVEN = "given"  # where weights and questions come from, as far as anyone but the caller knows


def extract(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    examples: Iterable[Mapping[str, Any]],
    folder: Path | str,
    *,
    components: Sequence[str] = HEADLINE.components,
    positions: Sequence[str] = HEADLINE.positions,
    prompt: Literal["few_shot", "chat"] = "few_shot",
    balance: bool = True,
    seed: int = 0,
    window: int | None = None,
    batch_tokens: int | None = None,
) -> pl.DataFrame:
    """Let a model answer questions, write its clean and knocked-out activations to a folder, and return its answers.

    Each of `examples` has a `question` and `gold`, the list of accepted answers. It may have a `subject`: questions
    about one subject stay together in folds and resamples. The model answers greedily under the few-shot prompt or its
    own chat template. `folder` gets a Parquet file for each of the `components` (resid, attn, mlp) at each of the
    `positions` (answer_last, final, before_answer), with the vectors of every layer, prompt and intervention;
    `anchorscope.extract.store.ActivationReader([folder])` reads them. `balance` keeps as many right as wrong answers,
    drawn by `seed`. `window` knocks out in that many layers up to the one that is read, instead of in all of them.
    `batch_tokens` are computed together, by default as many as suit the device.
    """
    _check(model, prompt, components=components, positions=positions)
    questions = _questions(examples, seed)
    grid, bundled = Grid.of(components, positions), PromptSet.bundled(prompt)
    prompts = bundled.built(tokenizer)
    with _in_eval_mode(model):
        answers = answer_questions(
            model,
            tokenizer,
            prompts["first"],
            questions=questions.to_dicts(),
            max_new_tokens=MAX_NEW_TOKENS,
            batch_tokens=batch_tokens,
        )
        kept = analysed(answers, balance, seed)
        workload = build_workload(tokenizer, prompts, kept, positions=grid.positions)
        way = path_for(model, workload, grid.components, window)
        with _writer(folder, model, grid, prompts=bundled, window=window, way=way) as writer:
            run_workload(model, workload, writer, path=way, batch_tokens=batch_tokens, window=window)
    return cast(pl.DataFrame, pl.from_arrow(answers))


@contextmanager
def _in_eval_mode(model: PreTrainedModel) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _writer(
    folder: Path | str,
    model: PreTrainedModel,
    grid: Grid,
    *,
    prompts: PromptSet,
    window: int | None,
    way: EnginePath | None,
) -> ActivationWriter:
    config = model.config.get_text_config()
    made_from = provenance(
        stage="extract",
        model={"weights": GIVEN},
        prompts=prompts.texts,
        window=window,
        path=way and way.as_json(),
    )
    return ActivationWriter(
        folder,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        dtype=model.dtype,
        made_from=made_from,
        grid=grid,
    )


def _questions(examples: Iterable[Mapping[str, Any]], seed: int) -> pl.DataFrame:
    rows = []
    for number, example in enumerate(examples):
        missing = [name for name in ("question", "gold") if name not in example]
        if missing:
            raise ValueError(f"Example {number} has no {' and no '.join(missing)}.")
        if isinstance(example["gold"], str):
            raise ValueError(f"The gold of example {number} is a text; it must be a list of accepted answers.")
        gold = json.dumps(list(example["gold"]))
        rows.append({"question": example["question"], "possible_answers": gold, "subj": example.get("subject")})
    schema = dict.fromkeys(("question", "possible_answers", "subj"), pl.String) | {"s_pop": pl.Int64}
    raw = pl.DataFrame(rows, schema=schema)
    questions, counts = normalize(raw, "popqa", seed=seed, where="examples")
    log.info("questions: %s", ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return questions


def _check(model: PreTrainedModel, prompt: str, components: Sequence[str], positions: Sequence[str]) -> None:
    for kind, given, known in (("components", components, COMPONENTS), ("positions", positions, POSITIONS)):
        if isinstance(given, str) or not given or not set(given) <= set(known):
            raise ValueError(f"{kind} is {given!r}; it must be a list of some of {', '.join(known)}.")
    dtype = str(model.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise ValueError(f"The model computes in {dtype}; load it with one of {', '.join(DTYPES)}.")
    if prompt not in read_json(BUNDLED_PROMPTS):
        raise ValueError(f"prompt is {prompt!r}; it must be few_shot or chat.")


def summarise(
    activations: Path | str | Sequence[Path | str],
    *,
    model: str = "model",
    dataset: str = "questions",
    folds: int = 5,
    draws: int = 2000,
    seed: int = 0,
) -> pl.DataFrame:
    """Probe every layer and average delta P over each anchor's examples. `plot_family` draws the summary.

    `activations` is the folder that `extract` wrote, or the folders of a workflow's shards. `model` and `dataset` are
    their names in the summary. `polars.concat` puts several summaries together.
    """
    paths = [activations] if isinstance(activations, str | Path) else list(activations)
    reader = ActivationReader(paths)
    headline = reader.grid.places()[0]
    delta, layers = measure(reader, folds=folds, seed=seed, where=f"{model} on {dataset}")
    summary = estimate(delta, layers, Headline(*headline), draws=draws, seed=seed).summary
    origin = made_from(file_of(paths[0], *headline))
    return described(
        summary,
        model=model,
        weights=origin["model"]["weights"],
        dataset=dataset,
        source=GIVEN,
        window=origin["window"],
    )
