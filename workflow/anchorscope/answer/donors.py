"""Other questions of the shard, whose words or whole text an experiment puts in the place of a question's own."""

import hashlib
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from anchorscope.text.normal_words import bare_words

DONORS = pa.schema([(name, pa.string()) for name in ("donor_wrong", "donor_right", "other")])


def own_draw(what: str, example: str) -> random.Random:
    """The generator that draws `what` for the example of this id: its own seed, so that no other example changes it."""
    return random.Random(int.from_bytes(hashlib.sha256(f"{what}\n{example}".encode()).digest()[:8]))


@dataclass(frozen=True)
class Lengths:
    """How many tokens a question has under the first prompt."""

    exact: int  # over its exact words
    whole: int


def find_donors(rows: Sequence[dict], lengths: Sequence[Lengths]) -> list[dict[str, str | None]]:
    """The donors of every answered question of a shard, by column; None where there is none.

    `donor_wrong` and `donor_right` were answered so and have as many exact question tokens, or the nearest number.
    `other` has as many tokens in all. Of several that are as near, one is drawn by the example's own seed.
    """
    ids, alike = [row["id"] for row in rows], _about_the_same(rows)
    exact, whole = [length.exact for length in lengths], [length.whole for length in lengths]
    wrong, right = ([one for one, row in enumerate(rows) if row["right"] is verdict] for verdict in (False, True))
    chosen = {
        "donor_wrong": _nearest(ids, alike, exact, among=wrong, what="donor_wrong"),
        "donor_right": _nearest(ids, alike, exact, among=right, what="donor_right"),
        "other": _nearest(ids, alike, whole, among=range(len(rows)), what="other"),
    }
    return [dict(zip(chosen, donors, strict=True)) for donors in zip(*chosen.values(), strict=True)]


def _about_the_same(rows: Sequence[dict]) -> list[set[str]]:
    """For each question the ids of those that are about its subject or have an answer of its own, itself among them."""
    traits = [
        {("answer", " ".join(bare_words(alias))) for alias in row["gold"]}
        | ({("subject", row["subject"])} if row["subject"] is not None else set())
        for row in rows
    ]
    having = defaultdict(set)
    for row, own in zip(rows, traits, strict=True):
        for trait in own:
            having[trait].add(row["id"])
    return [{row["id"]}.union(*(having[trait] for trait in own)) for row, own in zip(rows, traits, strict=True)]


def _nearest(
    ids: list[str], alike: list[set[str]], lengths: list[int], among: Sequence[int], what: str
) -> list[str | None]:
    """For each question the id of one of those `among` all, as near in length as there is one that is not `alike`."""
    of_length: dict[int, list[str]] = {}
    for index in among:
        of_length.setdefault(lengths[index], []).append(ids[index])

    @cache
    def at(length: int, distance: int) -> list[str]:
        both = {length - distance, length + distance}
        return sorted(name for one in both for name in of_length.get(one, []))

    found = []
    for own, same, length in zip(ids, alike, lengths, strict=True):
        draw, chosen = own_draw(what, own), None
        for distance in sorted({abs(other - length) for other in of_length}):
            fitting = [name for name in at(length, distance) if name not in same]
            if fitting:
                chosen = draw.choice(fitting)
                break
        found.append(chosen)
    return found
