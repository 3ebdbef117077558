"""Shows the examples in docstrings as code; as Markdown they would be quotations."""

import re
from typing import Any

import griffe

EXAMPLES = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.M | re.S)


class Doctests(griffe.Extension):
    """Puts a fence around each block that begins with >>>."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = EXAMPLES.sub(lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value)
