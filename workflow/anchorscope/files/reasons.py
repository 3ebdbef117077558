"""What a library or a user's file says, short enough for a sentence."""

LONGEST = 200  # characters


def reason_of(error: BaseException) -> str:
    """The error's message on one line of limited length, without its last full stop; its kind where it says nothing."""
    return shortened(" ".join(str(error).split())).rstrip(".") or type(error).__name__


def shortened(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
