"""Other questions of the shard, whose words or whole text an experiment puts in the place of a question's own."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True)
class _Asked:
    id: str
    subject: str | None
    gold: frozenset[str]  # normalised

    def about_another(self, other: "_Asked") -> bool:
        """Whether it is another question, about another subject and with another answer."""
        same_subject = self.subject is not None and self.subject == other.subject
        return self.id != other.id and not same_subject and self.gold.isdisjoint(other.gold)


def find_donors(rows: Sequence[dict], lengths: Sequence[Lengths]) -> list[dict[str, str | None]]:
    """The donors of every answered question of a shard, by column; None where there is none.

    `donor_wrong` and `donor_right` were answered so and have as many exact question tokens, or the nearest number.
    `other` has as many tokens in all. Of several that are as near, one is drawn by the example's own seed.
    """
    asked = [
        _Asked(row["id"], row["subject"], frozenset(" ".join(bare_words(alias)) for alias in row["gold"]))
        for row in rows
    ]
    exact, whole = [length.exact for length in lengths], [length.whole for length in lengths]
    wrong, right = ([one for one, row in enumerate(rows) if row["right"] is verdict] for verdict in (False, True))
    chosen = {
        "donor_wrong": _nearest(asked, exact, among=wrong, what="donor_wrong"),
        "donor_right": _nearest(asked, exact, among=right, what="donor_right"),
        "other": _nearest(asked, whole, among=range(len(rows)), what="other"),
    }
    return [dict(zip(chosen, ids, strict=True)) for ids in zip(*chosen.values(), strict=True)]


def _nearest(asked: list[_Asked], lengths: list[int], among: Sequence[int], what: str) -> list[str | None]:
    """For each question the id of one of those `among` all, as near in length as there is one about something else."""
    of_length: dict[int, list[_Asked]] = {}
    for index in among:
        of_length.setdefault(lengths[index], []).append(asked[index])
    found = []
    for own, length in zip(asked, lengths, strict=True):
        draw, chosen = own_draw(what, own.id), None
        for distance in sorted({abs(other - length) for other in of_length}):
            near = [one for other in {length - distance, length + distance} for one in of_length.get(other, [])]
            fitting = sorted(one.id for one in near if own.about_another(one))
            if fitting:
                chosen = draw.choice(fitting)
                break
        found.append(chosen)
    return found
