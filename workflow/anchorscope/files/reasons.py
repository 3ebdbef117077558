"""What a library or a user's file says, short enough for a sentence."""

LONGEST = 200  # characters


def reason_of(error: BaseException) -> str:
    """The error's message on one line of limited length, without its last full stop; its kind where it says nothing."""
    return shortened(str(error)).rstrip(".") or type(error).__name__


def shortened(text: object, longest: int = LONGEST) -> str:
    """A text, or a path, on one line of limited length."""
    line = " ".join(str(text).split())
    return line if len(line) <= longest else f"{line[:longest]}…"
