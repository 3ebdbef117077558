"""Good inputs, spoilt at random: bytes, keys, values and files."""

import copy
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from anchorscope.files.logs import raised_here
from anchorscope.files.sealed_parquet import DamagedFileError

WORDS = "|.|..|../x|/etc/passwd|a b|x\ny|0|null|flip|hub|file|bundled|é|-x|a/b|llama|\0|{a}|NaN|true".split("|")
NUMBERS = [-1, 0, 1, 2, 7, 20.0, 2**31, 2**63, 10**30, -(2**63), 1e308, float("nan"), float("inf")]
# What YAML and JSON can hold: infinities and NaN, keys that are not strings, strings with a meaning in a shell or path.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.sampled_from(NUMBERS),
    st.floats(),
    st.sampled_from(WORDS),
    st.text(max_size=8),
    st.sampled_from(["long " * 1000, "x" * 300, "x" * 5000]),
)
KEYS = st.one_of(st.sampled_from([*WORDS, "models", "title", "path", "revision", "question", "answer"]), st.text("ab"))
YAML_KEYS = KEYS | st.integers(-3, 3) | st.booleans()
BITS = [b"", b"\0", b"\xff", b"\n", b'"', b"{", b"[", b"}", b"]", b",", b":", b"\\u", b"\\ud800", b"&a ", b"*a", b"- "]


def values(keys: st.SearchStrategy) -> st.SearchStrategy:
    """Anything that could stand in a place."""
    several = lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)  # noqa: E731
    return st.recursive(SCALARS, several, max_leaves=6)


def places(node: object, path: tuple = ()) -> list[tuple]:
    """Every place in a tree of dicts and lists, as the keys that lead there."""
    found = [path] if path else []
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else []
    for key, child in children:
        found += places(child, (*path, key))
    return found


@st.composite
def changed(draw: st.DrawFn, tree: dict | list, most: int = 3, keys: st.SearchStrategy = KEYS) -> dict | list:
    """The tree with up to `most` places set, removed, renamed, or added to."""
    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(0, most))):
        known = places(tree)
        if not known:
            break
        *parents, last = draw(st.sampled_from(known))
        target = tree
        for key in parents:
            target = target[key]
        change = draw(st.sampled_from(["set", "remove", "add", "rename"]))
        if change == "set":
            target[last] = draw(values(keys))
        elif change == "add" and isinstance(target, dict):
            target[draw(keys)] = draw(values(keys))
        elif change == "rename" and isinstance(target, dict):
            target[draw(keys)] = target.pop(last)
        else:
            del target[last]
    return tree


@st.composite
def spoilt(draw: st.DrawFn, data: bytes, most: int = 3) -> bytes:
    """The bytes with up to `most` of them, or pieces of them, flipped, cut out, doubled, swapped or put in."""
    for _ in range(draw(st.integers(1, most))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(data))] * 2)))
        change = draw(st.sampled_from(["flip", "cut", "end", "double", "swap", "put"]))
        if change == "flip" and start < len(data):
            data = data[:start] + bytes([data[start] ^ 1 << draw(st.integers(0, 7))]) + data[start + 1 :]
        elif change == "cut":
            data = data[:start] + data[end:]
        elif change == "end":
            data = data[:start]
        elif change == "double":
            data = data[:end] + data[start:end] + data[end:]
        elif change == "swap":
            data = data[end:] + data[start:end] + data[:start]
        else:
            data = data[:start] + draw(st.sampled_from(BITS)) + data[start:]
    return data


def sweep(cases: int, inputs: st.SearchStrategy, judge: Callable[[object], bool]) -> Counter:
    """How many of that many inputs were accepted and refused by `judge`.

    They are the same ones every time, and others if SWEEP_SEED is a number.
    """
    found: Counter = Counter()
    drawn = os.getenv("SWEEP_SEED")

    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=drawn is None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def each(one: object) -> None:
        found["accepted" if judge(one) else "refused"] += 1

    (each if drawn is None else seed(int(drawn))(each))()
    print(f"{cases} cases: {dict(found)}")
    return found


def sentence_of(error: Exception, names: tuple[str, ...]) -> str:
    """A refusal's message, which must be one sentence that names one of the user's own things."""
    said = str(error)
    assert isinstance(error, ValueError | OSError), repr(error)
    assert "\n" not in said, said
    assert len(said) < 700, said
    assert said.endswith((".", "?")), said
    assert any(name in said for name in names), said
    assert "trust_remote_code" not in said, said
    return said


def check_refusal(error: Exception, names: tuple[str, ...] = ("",)) -> None:
    """A refusal must be one that a command prints without a traceback: a sentence that we raised ourselves."""
    assert raised_here(error.__traceback__), repr(error)
    if not isinstance(error, DamagedFileError):  # which ends with a command
        sentence_of(error, names)


def write(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file
