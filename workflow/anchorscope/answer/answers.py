"""The answer stage: the model's own answers, generated, graded, and with the tokens of the exact answer."""

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.donors import DONORS, Lengths, find_donors
from anchorscope.answer.prompts import Demonstrations, ModelSettings, Prompt, decoded_offsets, encode, tokens_over
from anchorscope.engine.door import Engine
from anchorscope.engine.work import Prompts, Said
from anchorscope.files.logs import log
from anchorscope.files.sealed_parquet import provenance, read_table, write_table
from anchorscope.models.loading import leave_gpus, load_fetched_tokenizer
from anchorscope.models.manifest import Manifest
from anchorscope.text.forms import answer_form, answer_in_question
from anchorscope.text.grading import label
from anchorscope.text.normal_words import Span

MAX_NEW_TOKENS = 32
SPANS = pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64()), ("kind", pa.string())]))
ANSWERS_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("question", pa.string()),
        ("gold", pa.list_(pa.string())),
        ("subject", pa.string()),
        ("property", pa.string()),
        ("popularity", pa.int64()),
        ("question_form", pa.string()),
        ("spans", SPANS),
        ("answer", pa.string()),
        ("generated_ids", pa.list_(pa.int32())),  # as generated, stop token included
        ("logprobs", pa.list_(pa.float32())),  # of each generated token, natural logarithm
        ("entropies", pa.list_(pa.float32())),  # of the distribution that each was chosen from, in nats
        ("right", pa.bool_()),  # null for a refusal
        ("refused", pa.bool_()),
        ("exact_answer", pa.string()),
        ("exact_start", pa.int32()),  # its first character, an index into answer
        ("exact_first", pa.int32()),  # first exact answer token, an index into generated_ids
        ("exact_last", pa.int32()),
        ("answer_final", pa.int32()),  # last token of the answer text
        ("answer_form", pa.string()),
        ("answer_in_question", pa.bool_()),  # the exact answer's words stand in the question
        *DONORS,
    ]
)


@dataclass(frozen=True)
class AnswerSettings(ModelSettings):
    """How a shard of questions is asked, under a single prompt."""

    rows: tuple[int, int]  # the shard's first question, and the one after its last


def answer_file(questions: Path | str, manifest: Path | str, target: Path | str, settings: AnswerSettings) -> None:
    """Write the model's graded answers to a shard of questions.

    Everything that needs no GPU is done before one is taken.
    """
    start, stop = settings.rows
    shard = read_table(questions).slice(start, stop - start).to_pylist()
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    ((name, prompt),) = settings.prompts.built(tokenizer).items()
    asked = plan(tokenizer, prompt, shard)
    engine = settings.engine(described)
    made = settings.made("answer", described, engine)
    generated = ask(engine, asked, MAX_NEW_TOKENS)
    leave_gpus(engine.model)
    answers = grade_all(tokenizer, shard, generated, asked.lengths)
    verdicts = answers.column("right").to_pylist()
    log.info("%d right, %d wrong, %d refused", *(verdicts.count(verdict) for verdict in (True, False, None)))
    odd = remarks(answers.column("answer").to_pylist(), settings.prompts.texts[name])
    for remark in odd:
        log.warning("%s", remark)
    write_table(target, answers, provenance(**made, remarks=odd))


def answer_questions(
    engine: Engine, tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: list[dict], max_new_tokens: int
) -> pa.Table:
    """Ask every question under `prompt`: one row per question, refusals included."""
    asked = plan(tokenizer, prompt, questions)
    return grade_all(tokenizer, questions, ask(engine, asked, max_new_tokens), asked.lengths)


@dataclass(frozen=True)
class Asked:
    """What can be prepared for some questions without the model."""

    prompts: list[list[int]]  # token ids
    ends: list[int]  # tokens that end an answer
    lengths: list[Lengths]  # of the questions, by which donors are found


def plan(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, questions: list[dict]) -> Asked:
    """Everything that needs no model."""
    encoded = encode(tokenizer, prompt, [question["question"] for question in questions])
    spans = ([Span(span["start"], span["end"]) for span in question["spans"]] for question in questions)
    lengths = [
        Lengths(len(item.tokens_of(exact)), len(item.question_tokens))
        for item, exact in zip(encoded, spans, strict=True)
    ]
    return Asked([item.ids for item in encoded], answer_ends(tokenizer), lengths)


def answer_ends(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The tokens that end an answer: the tokenizer's end of text, and every token whose text has a newline."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    ends = [index for index, text in enumerate(texts) if "\n" in text]
    return ends if tokenizer.eos_token_id is None else [*ends, tokenizer.eos_token_id]


def stop_tokens(model: PreTrainedModel, ends: list[int]) -> Tensor:
    """Boolean [vocabulary]: `ends`, and the tokens that end a text by the model's own settings."""
    size = model.get_output_embeddings().weight.shape[0]
    own = model.generation_config.eos_token_id
    stops = torch.zeros(size, dtype=torch.bool)
    for end in [*ends, *(own if isinstance(own, list) else [own])]:
        if end is not None and type(end) is not int:
            raise ValueError(
                f"eos_token_id in the model's generation_config.json is {reprlib.repr(own)}, not a token's number."
            )
        if end is not None and 0 <= end < size:  # some configs say -1 for none, or a token beyond the vocabulary
            stops[end] = True
    return stops.to(model.device)


def ask(engine: Engine, asked: Asked, max_new_tokens: int) -> list[Said]:
    """Every answer, in the order of the prompts."""
    work = Prompts(asked.prompts, stop_tokens(engine.model, asked.ends), max_new_tokens)
    return [said for (said,) in engine.continued(work, what="answering questions")]


def ask_again(engine: Engine, asked: Asked, uniforms: Tensor) -> list[list[Said]]:
    """Several answers to each prompt at temperature 1, drawn by `uniforms` [prompts, answers, tokens]."""
    work = Prompts(asked.prompts, stop_tokens(engine.model, asked.ends), uniforms.shape[-1], uniforms)
    return engine.continued(work, what="drawing samples")


def grade_all(
    tokenizer: PreTrainedTokenizerBase, questions: list[dict], generated: list[Said], lengths: list[Lengths]
) -> pa.Table:
    """One row per question, with the answer, its grade and the question's donors."""
    rows = [
        {
            **question,
            **grade(tokenizer, said.ids, gold=question["gold"], question=question["question"]),
            "logprobs": said.logprobs,
            "entropies": said.entropies,
        }
        for question, said in zip(questions, generated, strict=True)
    ]
    donors = find_donors(rows, lengths)
    return pa.Table.from_pylist([row | mine for row, mine in zip(rows, donors, strict=True)], schema=ANSWERS_SCHEMA)


def remarks(answers: Sequence[str], demonstrations: Demonstrations | str) -> list[str]:
    """What looks wrong about most of a model's answers, and why that may be."""
    shots = [] if isinstance(demonstrations, str) else demonstrations  # a chat prompt has none
    # Where the prompt offers "I don't know", it is meant to be repeated.
    shown = {shot["answer"].casefold() for shot in shots if not label(shot["answer"], []).refused}
    empty = sum(not answer for answer in answers)
    echoes = sum(answer.casefold() in shown for answer in answers if answer)
    said = []
    if empty > len(answers) / 2:
        said.append(
            f"{empty} of {len(answers)} answers are empty; the prompt style (`prompt: chat` or `few_shot`) may not "
            "suit the model, or its tokenizer may be another model's."
        )
    if echoes > len(answers) / 2:
        said.append(
            f"{echoes} of {len(answers)} answers repeat one of the prompt's demonstrations; the model may be too small "
            "for the few-shot prompt, or its tokenizer may leave out a beginning-of-text token."
        )
    return said


def grade(tokenizer: PreTrainedTokenizerBase, ids: list[int], gold: list[str], question: str) -> dict:
    """Grade generated ids and locate the exact answer among them."""
    text, offsets = decoded_offsets(tokenizer, ids)
    answer = text.split("\n", 1)[0]
    verdict = label(answer, gold, question)
    row = {
        "answer": answer.strip(),
        "generated_ids": ids,
        "right": verdict.right,
        "refused": verdict.refused,
        "exact_answer": None,
        "exact_start": None,
        "exact_first": None,
        "exact_last": None,
        "answer_final": None,
        "answer_form": None,
        "answer_in_question": None,
    }
    if verdict.exact is None:
        return row
    exact = tokens_over(offsets, [verdict.exact])
    covered = [index for index, (start, end) in enumerate(offsets) if start < len(answer.rstrip()) and start < end]
    said = answer[verdict.exact.start : verdict.exact.end]
    return row | {
        "exact_answer": said,
        "exact_start": verdict.exact.start - (len(answer) - len(answer.lstrip())),
        "exact_first": exact[0],
        "exact_last": exact[-1],
        "answer_final": covered[-1],
        "answer_form": answer_form(said, question),
        "answer_in_question": answer_in_question(said, question),
    }
