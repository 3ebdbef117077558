"""What a reader must know before taking a figure for the published one."""


def note(bundled: list[str]) -> str:
    """A sentence for a run on the bundled question sets of these titles; empty without them."""
    if not bundled:
        return ""
    return f"{', '.join(bundled)}: questions bundled with Anchorscope, not the published datasets."
