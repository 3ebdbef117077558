"""Checks of what Python code is called with; each mistake is one sentence that names the argument."""

import difflib
import os
import reprlib
from collections.abc import Collection, Mapping
from numbers import Integral
from typing import Any

from anchorscope.files.faults import shortened


def is_text(value: object) -> bool:
    """Whether this is a text that can be written; half a surrogate pair cannot."""
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def is_list(value: object) -> bool:
    """Whether this is a list, or what serves as one: a tuple, a set, an array, a column of a table."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)


def is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike) and "\0" not in str(value) and is_text(str(value))


def check_whole(name: str, value: Any, least: int, most: int | None = None) -> None:
    fits = isinstance(value, Integral) and not isinstance(value, bool)
    if not fits or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a whole number {bounds}.")


def check_choices(name: str, value: Any, known: Collection[str], least: int = 0) -> None:
    """Refuse what is not a list of at least so many of the known names."""
    if not is_list(value) or len(value) < least or not all(isinstance(one, str) and one in known for one in value):
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a list of some of {', '.join(known)}.")


def check_known(whose: str, what: str, name: object, known: Collection[str]) -> None:
    """Refuse a name that is not known; the sentence has those that are, and the one that may be meant."""
    if not isinstance(name, str) or name not in known:
        meant = meant_by(name, known)
        hint = f" (did you mean {meant}?)" if meant else ""
        raise ValueError(f"{whose} has no {what} {shortened(name)}{hint}; it has {', '.join(known) or 'none'}.")


def meant_by(name: object, known: Collection[str]) -> str | None:
    """The known name that is most like this one; None if none is like it."""
    return next(iter(difflib.get_close_matches(shortened(name), known, n=1)), None)


def choose_titles(whose: str, what: str, names: Any, known: Mapping[str, str]) -> dict[str, str]:
    """Return the titles of names: those given with them, else the known ones; without names, all that are known."""
    names = known if names is None else [names] if isinstance(names, str) else names
    has_titles = isinstance(names, Mapping) and all(map(is_text, names.values()))
    if not (has_titles or is_list(names)) or not len(names):
        raise ValueError(f"{what}s is {reprlib.repr(names)}; it must be names, or names with the titles to show.")
    for name in names:
        check_known(whose, what, name, known)
    titles = dict(names) if isinstance(names, Mapping) else {name: known[name] for name in names}
    if len(set(titles.values())) < len(titles):
        raise ValueError(f"Two {what}s have the same title; give each one of its own.")
    return titles


def check_texts(name: str, value: Any) -> None:
    """Refuse what is not a list of texts."""
    if isinstance(value, str):
        raise ValueError(f"{name} is one text; give a list of them.")
    if not is_list(value):
        raise ValueError(f"{name} is {reprlib.repr(value)}; it must be a list of texts.")
    for number, one in enumerate(value, 1):
        if not is_text(one):
            raise ValueError(f"Number {number} of the {name} is {reprlib.repr(one)}, not a text.")
