"""How a job of the workflow begins: every script imports this first, and then what it needs.

What a script imports stays as long as it runs. To search that for garbage, again and again while there is more of it,
took up to a second of every job: so nothing is searched until all is imported.
"""

import gc

from anchorscope.files.logs import configure_logging

gc.disable()


def begin(log: str) -> None:
    """What is imported by now stays, and is not searched at the end either. The job's messages go to its log."""
    gc.freeze()
    gc.enable()
    configure_logging(log)
