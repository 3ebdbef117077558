"""A figure's SVG as the page shows it: a fraction of the bytes, and in colours that fit a light and a dark screen."""

import re
from collections.abc import Mapping
from functools import cache
from urllib.parse import quote
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from markupsafe import Markup

from anchorscope.draw.style import on_dark_page

FALLBACKS = "Verdana,sans-serif"  # where the figure's font is missing: letters nearly as wide
MEASURES = ("d", "x", "y", "width", "height", "transform", "viewBox")  # attributes with positions
REFERENCE = re.compile(r"(?<=url\(#)[\w-]+|(?<=^#)[\w-]+")  # to another element by its id, or a colour
UNSEEN = ("metadata", "style")  # the style sheet is written anew
PAINTS = ("fill", "stroke")  # attributes; nearly all colours are in styles
QUOTES = {"'": "&apos;"}
NAMESPACE = "http://www.w3.org/2000/svg"


def svg_uri(svg: str) -> Markup:
    """A data URI, shorter than in base64. No space would end it in `srcset`, and there is nothing that HTML reads."""
    return Markup("data:image/svg+xml," + quote(svg, safe="!$'()*+,-./:;=?@[]^_`{|}~"))


def small_svg(svg: str) -> str:
    """What matplotlib wrote, to a hundredth of a point, with colours for a light and for a dark screen."""
    root = ElementTree.fromstring(svg)
    for node in root.iter():
        node.tag = _plain(node.tag)
        node.attrib = {_plain(name): value for name, value in node.items()}
    _shorten(root)
    sheet = _style_sheet(root)
    inner = "".join(map(_written, root))
    return _element("svg", {"xmlns": NAMESPACE, **root.attrib}, f"<style>{escape(sheet)}</style>{inner}")


def _plain(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition("}")[2]


def _shorten(root: Element) -> None:
    """Round positions, and keep ids only where something refers to them, with short names."""
    values = (value for node in root.iter() for value in node.attrib.values() if "#" in value)
    used = {found for value in values for found in REFERENCE.findall(value)}
    named = (node.get("id", "") for node in root.iter())
    ids = {name: f"i{number}" for number, name in enumerate(name for name in named if name in used)}
    for node in root.iter():
        for name, value in node.items():
            if name in MEASURES:
                node.set(name, _rounded(value))
            elif "#" in value:
                node.set(name, REFERENCE.sub(lambda found: ids.get(found[0], found[0]), value))
        if short := ids.get(node.attrib.pop("id", "")):
            node.set("id", short)
        if node.get("transform", "").startswith("rotate(0,"):
            del node.attrib["transform"]


def _rounded(positions: str) -> str:
    """Positions to a hundredth; between them commas, which take less than spaces in a data URI."""
    numbers = re.sub(r"-?\d+\.?\d*", lambda found: _number(float(found[0])), positions.strip())
    return re.sub(r"\s+(?=[a-zA-Z])|(?<=[a-zA-Z])\s+", "", numbers).replace(" ", ",")


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")  # plus zero: without the sign of -0


def _style_sheet(root: Element) -> str:
    """Take the styles out of all elements, which get classes; colours are variables with a light and a dark value."""
    variables = {"#000000": "--0"}  # by colour; that something is filled black is not written
    classes: dict[str, str] = {}  # by style

    def variable(colour: re.Match) -> str:
        return f"var({variables.setdefault(colour[0], f'--{len(variables)}')})"

    @cache  # a figure has a few styles, again and again
    def class_of(style: str) -> str:
        style = re.sub(r"font-family:[^;]+", rf"\g<0>,{FALLBACKS}", style)
        style = re.sub(r"#[0-9a-f]{6}", variable, style)
        return classes.setdefault(style, f"s{len(classes)}")

    for node in root.iter():
        given = [f"{name}:{node.attrib.pop(name)}" for name in PAINTS if name in node.attrib]
        style = ";".join([*given, *node.attrib.pop("style", "").split("; ")]).replace(": ", ":").strip(";")
        if style:
            node.set("class", class_of(style))
    light, dark = (
        ";".join(f"{name}:{change(colour)}" for colour, name in variables.items()) for change in (str, on_dark_page)
    )
    everywhere = "".join(node.text or "" for node in root.iter("style"))
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    return f"{everywhere}svg{{fill:var(--0);{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}{rules}"


def _written(node: Element) -> str:
    """An element as text, without groups that change nothing and without what is not seen."""
    if node.tag in UNSEEN:
        return ""
    inner = escape(node.text or "") if node.tag == "text" else "".join(map(_written, node))
    if not (inner and node.attrib) and node.tag == "g":
        return inner
    return _element(node.tag, node.attrib, inner)


def _element(tag: str, attributes: Mapping[str, str], inner: str) -> str:
    started = "".join([tag, *(f" {name}='{escape(value, QUOTES)}'" for name, value in attributes.items())])
    return f"<{started}>{inner}</{tag}>" if inner else f"<{started}/>"
