"""Numbers as the report writes them."""

from collections.abc import Mapping

MINUS = "−"


def plain(value: float, decimals: int = 1) -> str:
    """A number."""
    return f"{value:.{decimals}f}".replace("-", MINUS)


def signed(value: float, decimals: int = 1) -> str:
    """A number with its sign."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def number_text(value: object) -> str:
    """A value as a reader wants it: numbers to one decimal place, nothing as a dash."""
    if value is None:
        return "–"
    return plain(value) if isinstance(value, float) else str(value)


def between(low: float | None, high: float | None, decimals: int = 1) -> str:
    """An interval."""
    return "–" if low is None or high is None else f"{plain(low, decimals)} … {plain(high, decimals)}"


def signed_between(low: float, high: float, decimals: int = 1) -> str:
    """An interval whose ends have signs."""
    return f"{signed(low, decimals)} … {signed(high, decimals)}"


def with_ends(row: Mapping, name: str, decimals: int) -> str | None:
    """A column of a row with its interval; nothing where it has no value."""
    if row[name] is None:
        return None
    return f"{plain(row[name], decimals)} ({between(row[f'{name}_low'], row[f'{name}_high'], decimals)})"
