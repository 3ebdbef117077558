"""From an answered question to the sequences that are run: one per pass, some with other tokens before the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Encoded, Prompt, encode
from anchorscope.engine.work import Variant, Work
from anchorscope.extract.axes import PASSES, POSITIONS, Grid, Pass, passes_of, window_of
from anchorscope.extract.interventions import DONOR_OF, PromptedQuestion, QuestionTokens, cut_tokens, replaced_prompt
from anchorscope.extract.store import CUT, KEYS, REPLACED
from anchorscope.files.logs import log

ENCODED_AT_ONCE = 256  # questions; encoded, they take far more memory than their ids alone
USED = ["id", "question", "spans", "popularity"]  # of every question of a shard: each may be a donor


@dataclass(frozen=True)
class Workload:
    """Everything that is run: for each example one sequence per pass."""

    keys: list[dict]  # of each example, with the number of tokens that are cut
    sequences: list[list[Variant]]  # of each example, in the order of the passes
    passes: list[Pass]

    def work(self, grid: Grid, layers: int, knockout: str) -> Work:
        """What the engine runs: the sequences under one prompt, whose passes stand together, share a trunk."""
        prompts = [prompt for prompt, _ in self.passes]
        items = [
            [
                [one for one, own in zip(some, prompts, strict=True) if own == prompt]
                for prompt in dict.fromkeys(prompts)
            ]
            for some in self.sequences
        ]
        return Work(items, grid.components, range(layers), window_of(knockout))


def build_workload(
    tokenizer: PreTrainedTokenizerBase,
    prompts: dict[str, Prompt],
    examples: pa.Table,
    passes: list[Pass] = PASSES,
    positions: Sequence[str] = POSITIONS,
) -> Workload:
    """Every pass of every example, each of which keeps the `positions`."""
    sequences: list[list[Variant]] = []
    for start in range(0, len(examples), ENCODED_AT_ONCE):
        part = examples.slice(start, ENCODED_AT_ONCE).to_pylist()
        questions = [example["question"] for example in part]
        encoded = {name: encode(tokenizer, prompts[name], questions) for name in dict(passes)}
        for index, example in enumerate(part):
            mine = {name: items[index] for name, items in encoded.items()}
            sequences.append(_sequences_of(example, mine, passes=passes, positions=positions))
    rows = examples.select(KEYS.names).to_pylist()
    keys = [row | {CUT: max(len(one.cut) for one in some)} for row, some in zip(rows, sequences, strict=True)]
    return Workload(keys, sequences, passes)


def tell_uncut(workload: Workload, knockout: str) -> None:
    """Say in the log how many examples have nothing that a knockout would cut."""
    uncut = sum(key[CUT] == 0 for key in workload.keys)
    if uncut:
        log.info("%s cuts nothing in %d of %d examples", knockout, uncut, len(workload.keys))


def _sequences_of(
    example: dict, encoded: dict[str, Encoded], passes: list[Pass], positions: Sequence[str]
) -> list[Variant]:
    """The sequences of one example under its encoded prompts. Those under one prompt share their ids."""
    answer, kept = kept_answer(example, positions)
    prompted = {
        name: PromptedQuestion(example["id"], example["question"], spans=example["spans"], encoded=item)
        for name, item in encoded.items()
    }
    ids = {name: np.array(item.ids + answer, np.int32) for name, item in encoded.items()}
    return [
        Variant(
            ids[name],
            read=[len(encoded[name].ids) + place for place in kept],
            cut=cut_tokens(intervention, prompted[name]),
        )
        for name, intervention in passes
    ]


def kept_answer(example: dict, positions: Sequence[str]) -> tuple[list[int], list[int]]:
    """The answer's tokens, and which of them are kept; -1 is the last token before the answer.

    They end with the last one that is kept: nothing up to it depends on what follows.
    """
    kept = [place_of(position, example) for position in positions]
    return example["generated_ids"][: max(kept) + 1], kept


def place_of(position: str, example: Mapping) -> int:
    """Which of the answer's tokens is at a position; -1 for the one before the answer."""
    places = {
        "answer_last": example["exact_last"],
        "final": example["answer_final"],
        "before_answer": example["exact_first"] - 1,
    }
    return places[position]


def build_replaced(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Prompt,
    examples: pa.Table,
    *,
    asked: pa.Table,
    experiment: str,
    positions: Sequence[str],
) -> Workload:
    """Every pass of an experiment over every example. `asked` has all questions of the shard."""
    passes, bos = passes_of(experiment), tokenizer.bos_token_id
    tokens = _question_tokens(tokenizer, prompt, asked)
    rows = examples.to_pylist()
    runs = [_runs_of(example, tokens, passes=passes, positions=positions, bos=bos) for example in rows]
    keys = [{name: row[name] for name in KEYS.names} | done for row, (done, _) in zip(rows, runs, strict=True)]
    for _, intervention in passes:
        undone = sum(key[f"{intervention}/replaced"] == 0 for key in keys)
        if undone:
            log.info("%s replaces nothing in %d of %d examples", intervention, undone, len(keys))
    return Workload(keys, [some for _, some in runs], passes)


def _question_tokens(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, asked: pa.Table) -> dict[str, QuestionTokens]:
    """Every question under the prompt, by id."""
    found: dict[str, QuestionTokens] = {}
    for start in range(0, len(asked), ENCODED_AT_ONCE):
        part = asked.select(USED).slice(start, ENCODED_AT_ONCE).to_pylist()
        encoded = encode(tokenizer, prompt, [row["question"] for row in part])
        for row, item in zip(part, encoded, strict=True):
            exact = PromptedQuestion(row["id"], row["question"], spans=row["spans"], encoded=item).exact_tokens()
            others = sorted(set(item.question_tokens) - set(exact))
            found[row["id"]] = QuestionTokens(row["id"], row["popularity"], item.ids, exact=exact, others=others)
    return found


def _runs_of(
    example: dict, tokens: dict[str, QuestionTokens], passes: list[Pass], positions: Sequence[str], bos: int | None
) -> tuple[dict, list[Variant]]:
    """What each pass did to one example, and its sequences. Those under one prompt are of one length."""
    answer, kept = kept_answer(example, positions)
    done: dict = {}
    sequences = []
    for _, intervention in passes:
        column = DONOR_OF[intervention]
        donor = tokens.get(example[column]) if column else None
        prompt = replaced_prompt(intervention, tokens[example["id"]], donor, bos)
        # Without a prompt, no token may stand before the answer. The first is read then, and nothing counts as done.
        there = len(prompt.ids) + min(kept) >= 0
        keep = [max(0, len(prompt.ids) + place) for place in kept]
        values = (donor and donor.id, donor and donor.popularity, prompt.count if there else 0, prompt.kept)
        done |= dict(zip([f"{intervention}/{name}" for name in REPLACED.names], values, strict=True))
        ids = prompt.ids + answer or example["generated_ids"][:1]
        sequences.append(Variant(np.array(ids, np.int32), read=keep))
    return done, sequences
