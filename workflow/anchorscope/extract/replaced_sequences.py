"""From an answered question to the sequences of an experiment that replaces tokens before the answer."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Prompt, encode
from anchorscope.engine.work import Variant
from anchorscope.extract.axes import Pass, passes_of
from anchorscope.extract.interventions import PromptedQuestion
from anchorscope.extract.replacements import DONOR_OF, QuestionTokens, replaced_prompt
from anchorscope.extract.sequences import ENCODED_AT_ONCE, Workload, kept_answer
from anchorscope.extract.store import KEYS, REPLACED
from anchorscope.files.logs import log

USED = ["id", "question", "spans", "popularity"]  # of every question of a shard: each may be a donor


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
