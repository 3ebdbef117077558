"""What a library says about an error, on one line for a sentence."""

LONGEST = 200  # characters


def reason_of(error: BaseException) -> str:
    """The error's message on one line of limited length, without its last full stop; its kind where it says nothing."""
    line = " ".join(str(error).split())
    return (line if len(line) <= LONGEST else f"{line[:LONGEST]}…").rstrip(".") or type(error).__name__
