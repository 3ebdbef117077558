"""Text in files that are either whole or absent."""

from pathlib import Path

from anchorscope.files.atomic import atomic


def write_text(target: Path | str, text: str) -> None:
    with atomic(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
