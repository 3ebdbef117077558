"""The report's HTML, CSS and JavaScript, which are files in the folder `templates`."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from anchorscope.summarise.numbers import number_text

FOLDER = Path(__file__).resolve().parent / "templates"


def render(template: str, **values: object) -> Markup:
    """A template filled in. Every text in `values` is escaped, unless it has been rendered already."""
    return Markup(ENVIRONMENT.get_template(template).render(**values))


def _verbatim(file: str) -> Markup:
    """A style sheet or script as it stands: braces in it are its own."""
    return Markup((FOLDER / file).read_text(encoding="utf-8"))


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["verbatim"] = _verbatim
    environment.filters["number_text"] = number_text
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    return environment


ENVIRONMENT = _environment()
