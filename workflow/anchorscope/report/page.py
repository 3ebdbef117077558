"""One self-contained page: its sections, and the HTML, CSS and JavaScript of all, files in the folder `templates`."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anchorscope.summarise.wording import number_text

FOLDER = Path(__file__).resolve().parent / "templates"
SIGNS = {  # of verdicts on claims and on answers, for those who do not see the colours of badges
    **{"supported": "✓", "contradicted": "✗", "undecided": "?", "does not apply": "–"},
    **{"right": "✓", "hallucinated": "✗", "refused": "–"},
}


def verbatim(file: str) -> Markup:
    """A style sheet or script as it stands: braces in it are its own."""
    return Markup((FOLDER / file).read_text(encoding="utf-8"))


ENVIRONMENT = Environment(
    loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
ENVIRONMENT.globals |= {"verbatim": verbatim, "signs": SIGNS}
ENVIRONMENT.filters["number_text"] = number_text
ENVIRONMENT.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}


def render(template: str, **values: object) -> Markup:
    """A template filled in. Every text in `values` is escaped, unless it has been rendered already."""
    return Markup(ENVIRONMENT.get_template(template).render(**values))


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading that the contents link to."""

    title: str
    content: Markup
    findings: Sequence[str] = ()  # sentences that it opens with

    @property
    def anchor(self) -> str:
        return re.sub(r"\W+", "-", self.title.lower())


def page(opening: Markup, sections: Iterable[Section]) -> str:
    """The report as HTML. It needs no other file."""
    return str(render("page.html", opening=opening, sections=list(sections))) + "\n"
