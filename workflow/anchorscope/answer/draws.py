"""Random draws by an example's own seed, so that no other example changes them."""

import hashlib
import random


def own_draw(what: str, example: str) -> random.Random:
    """The generator that draws `what` for the example of this id."""
    return random.Random(int.from_bytes(hashlib.sha256(f"{what}\n{example}".encode()).digest()[:8]))
