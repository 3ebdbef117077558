"""Which tokens an intervention cuts."""

import hashlib
import random
from collections.abc import Callable

from anchorscope.answer.prompts import Encoded

# The control draws from this many tokens before the question, or from more when it needs more.
CONTROL_REACH = 16


def exact_question(encoded: Encoded, exact: list[int], example: str) -> list[int]:
    """The paper's knockout: the exact question tokens."""
    return exact


def random_question(encoded: Encoded, exact: list[int], example: str) -> list[int]:
    """The control: as many other tokens of the question, drawn by the example's own seed.

    Where the question has too few, the rest comes from the tokens just before it. The sequence's first token and
    special tokens are never drawn: they hold attention for reasons of their own.
    """
    seed = int.from_bytes(hashlib.sha256(f"random_question\n{example}".encode()).digest()[:8])
    draw = random.Random(seed)
    question = encoded.question_tokens
    others = sorted(set(question) - set(exact))
    if len(others) >= len(exact):
        return sorted(draw.sample(others, len(exact)))
    missing = len(exact) - len(others)
    before = [index for index in range(1, question[0]) if index not in encoded.special][-max(CONTROL_REACH, missing) :]
    return sorted(others + draw.sample(before, min(missing, len(before))))


def clean(encoded: Encoded, exact: list[int], example: str) -> list[int]:
    """No intervention."""
    return []


# One line per intervention; the same code measures all of them.
INTERVENTIONS: dict[str, Callable[[Encoded, list[int], str], list[int]]] = {
    "clean": clean,
    "exact_question": exact_question,
    "random_question": random_question,
}
