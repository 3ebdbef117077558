"""Numbers as the report writes them."""

MINUS = "−"


def number_text(value: object) -> str:
    """A value as a reader wants it: numbers to one decimal place, nothing as a dash."""
    if value is None:
        return "–"
    return f"{value:.1f}".replace("-", MINUS) if isinstance(value, float) else str(value)


def signed(value: float, decimals: int = 1) -> str:
    """A number with its sign."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def between(low: float | None, high: float | None, decimals: int = 1) -> str:
    """An interval."""
    if low is None or high is None:
        return "–"
    return f"{low:.{decimals}f} … {high:.{decimals}f}".replace("-", MINUS)
