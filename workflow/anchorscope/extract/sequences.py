"""From an answered question to the sequences that are run: one per pass, and one tree per prompt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from anchorscope.answer.prompts import Encoded, Prompt, common_prefix, encode
from anchorscope.engine.packing import Branch, Tree, trunk
from anchorscope.extract.axes import PASSES, POSITIONS, Pass
from anchorscope.extract.interventions import PromptedQuestion, cut_tokens
from anchorscope.extract.store import CUT, KEYS
from anchorscope.files.logs import log

NOTHING = np.arange(0)
ENCODED_AT_ONCE = 256  # questions; encoded, they take far more memory than their ids alone


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """One input as the method defines it: prompt and answer tokens, which of them are cut, and which are kept."""

    ids: np.ndarray
    cut: list[int]
    keep: list[int]

    def __post_init__(self) -> None:
        if not set(self.keep).isdisjoint(self.cut):
            raise ValueError("A token that is cut cannot be kept: it is left out of the computation.")

    def fork(self, trunk: np.ndarray) -> int:
        """The first token that is cut or is not the trunk's; nothing before it changes."""
        first = min(self.cut, default=len(self.ids))
        other = NOTHING if self.ids is trunk else (self.ids != trunk).nonzero()[0]
        return min([first, *other[:1].tolist()])

    def tail(self, trunk: np.ndarray) -> int:
        """How many tokens are computed besides the trunk's."""
        return len(self.ids) - self.fork(trunk) - len(self.cut)


@dataclass(frozen=True)
class Workload:
    """Everything that is run: for each example one sequence per pass."""

    keys: list[dict]  # of each example, with the number of tokens that are cut
    sequences: list[list[TokenSequence]]  # of each example, in the order of the passes
    shared: dict[str, int]  # how many leading tokens all sequences under each prompt have in common
    passes: list[Pass]


def build_workload(
    tokenizer: PreTrainedTokenizerBase,
    prompts: dict[str, Prompt],
    examples: pa.Table,
    passes: list[Pass] = PASSES,
    positions: Sequence[str] = POSITIONS,
) -> Workload:
    """Every pass of every example, each of which keeps the `positions`."""
    sequences: list[list[TokenSequence]] = []
    firsts: dict[str, Encoded] = {}
    shared: dict[str, int] = {}
    for start in range(0, len(examples), ENCODED_AT_ONCE):
        part = examples.slice(start, ENCODED_AT_ONCE).to_pylist()
        questions = [example["question"] for example in part]
        encoded = {name: encode(tokenizer, prompts[name], questions) for name in dict(passes)}
        for name, items in encoded.items():
            first = firsts.setdefault(name, items[0])
            shared[name] = min(shared.get(name, len(first.ids)), common_prefix([first, *items]))
        for index, example in enumerate(part):
            mine = {name: items[index] for name, items in encoded.items()}
            sequences.append(_sequences_of(example, mine, passes=passes, positions=positions))
    rows = examples.select(KEYS.names).to_pylist()
    keys = [row | {CUT: max(len(one.cut) for one in some)} for row, some in zip(rows, sequences, strict=True)]
    return Workload(keys=keys, sequences=sequences, shared=shared, passes=passes)


def tell_uncut(workload: Workload, knockout: str) -> None:
    """Say in the log how many examples have nothing that a knockout would cut."""
    uncut = sum(key[CUT] == 0 for key in workload.keys)
    if uncut:
        log.info("%s cuts nothing in %d of %d examples", knockout, uncut, len(workload.keys))


def _sequences_of(
    example: dict, encoded: dict[str, Encoded], passes: list[Pass], positions: Sequence[str]
) -> list[TokenSequence]:
    """The sequences of one example under its encoded prompts. Those under one prompt share their ids."""
    answer, kept = kept_answer(example, positions)
    prompted = {
        name: PromptedQuestion(example["id"], example["question"], spans=example["spans"], encoded=item)
        for name, item in encoded.items()
    }
    ids = {name: np.array(item.ids + answer, np.int32) for name, item in encoded.items()}
    return [
        TokenSequence(
            ids[name],
            cut_tokens(intervention, prompted[name]),
            [len(encoded[name].ids) + place for place in kept],
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


def beginning(sequences: list[TokenSequence]) -> np.ndarray:
    """The tokens of sequences under one prompt that come before any that is kept: only these need not be computed."""
    return sequences[0].ids[: min(min(sequence.keep) for sequence in sequences)]


def grow_tree(sequences: list[TokenSequence], known: np.ndarray, copies: int | None = None) -> Tree:
    """The sequences under one prompt as a tree: the first one's tokens are the trunk, and each is a branch of it.

    `known` are the pool places of the trunk's first tokens.

    A cut token is hidden, in every layer, from every later token that is not cut itself. So what is kept depends on no
    cut token at all, and a branch leaves them out: from the first token that is cut or another than the trunk's, it has
    the tokens that are not cut, at their own positions. The first sequence, uncut, is a branch without tokens.

    With `copies`, each sequence has that many branches, and the trunk begins before all of them.
    """
    ids = sequences[0].ids
    forks = [sequence.fork(ids) for sequence in sequences]
    start = len(known) if copies is None else min(len(known), *forks)
    tree = trunk(known[:start], ids[start:])
    for sequence, fork in zip(sequences, forks, strict=True):
        left = np.arange(len(ids)) >= fork
        left[sequence.cut] = False
        positions = left.nonzero()[0]
        tree.branches.extend([Branch(sequence.ids[positions], positions, fork)] * (copies or 1))
    return tree
