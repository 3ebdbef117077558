"""A few questions with answers, as token sequences, for tests of the engine and of extraction."""

from dataclasses import asdict

import numpy as np
import pyarrow as pa

from anchorscope.answer.prompts import Prompt, few_shot_prompt
from anchorscope.engine.work import Variant
from anchorscope.extract.sequences import Workload
from anchorscope.text.content_words import exact_question_spans
from anchorscope.text.forms import question_form

SHOTS = {
    "first": [{"question": "Who wrote Emma?", "answer": "Jane Austen"}, {"question": "is ice cold", "answer": "yes"}],
    "second": [{"question": "What is the capital of Peru?", "answer": "Lima"}],
}
# Of mixed lengths. The second and fourth have more exact words than other words, so that their control reaches back.
QUESTIONS = [
    "What is the capital of France?",
    "dante alighieri inferno year",
    "In which year did the first human walk on the surface of the Moon, and what was his name?",
    "Gone with the Wind author birthplace",
    "Is Björk older than Sjón?",
]
# The second and third have no subject. The fourth has no other word than those of its subject and its property.
SUBJECTS = {
    "What is the capital of France?": "France",
    "Gone with the Wind author birthplace": "Gone with the Wind",
    "Is Björk older than Sjón?": "Björk",
}


# As many as the engine wants begin with "What is the", and more with "What is"; words that are cut are among these.
ALIKE = [
    "What is the capital of France?",
    "What is the capital of the country in which the Nile ends?",
    "What is Emma?",
    "What is the author of Emma known for?",
    "dante alighieri inferno year",
    "What is the year of the Moon landing?",
]


def prompts() -> dict[str, Prompt]:
    return {name: few_shot_prompt(shots) for name, shots in SHOTS.items()}


def examples(tokenizer, questions: list[str] = QUESTIONS) -> pa.Table:
    """Questions with answers of several tokens, of which only a part is the exact answer."""
    rows = []
    for index, question in enumerate(questions):
        ids = tokenizer(" It was Paris in France, I think")["input_ids"][: 3 + index]
        rows.append(
            {
                "id": f"q{index}",
                "question": question,
                "spans": [asdict(span) for span in exact_question_spans(question, SUBJECTS.get(question))],
                "generated_ids": [*ids, 198],
                "exact_first": 1,
                "exact_last": 1 + index % 2,
                "answer_final": len(ids) - 1,
                "right": index % 2 == 0,
                "subject": SUBJECTS.get(question),
                "property": None,
                "popularity": index,
                "question_form": question_form(question),
                **{"answer_form": "other", "answer_in_question": False},
            }
        )
    return pa.Table.from_pylist(rows)


def forest(trees: int, prefix: int) -> list[list[Variant]]:
    """Clean and cut sequences of different lengths after a common prefix; some cuts reach into it."""
    draw = np.random.default_rng(0)
    start = draw.integers(0, 500, prefix)
    sequences = []
    for index in range(trees):
        ids = np.concatenate([start, draw.integers(0, 500, 7 + index)])
        cuts = [[], [prefix + 1, prefix + 3], [prefix - 2, prefix], [prefix + 4]]
        sequences.append([Variant(ids, read=[len(ids) - 2, len(ids) - 1, prefix + 6], cut=cut) for cut in cuts])
    return sequences


def longest(workload: Workload) -> int:
    """The tokens of the longest sequence."""
    return max(len(sequence.ids) for passes in workload.sequences for sequence in passes)
