"""Figures on the report: their SVG is small, draws what the original draws, and has colours for a dark screen."""

import os
import re
import subprocess
import sys
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from anchorscope.draw.facets import save
from anchorscope.draw.style import ON_DARK_PAGE, PALETTE, read_style
from anchorscope.report.figures import LARGEST_SVG, by_set, figures_section, make_pictures
from anchorscope.report.pictures import FALLBACKS, small_svg, svg_uri
from read_figures import write_figure
from synthetic_run import make_accounts, make_deepest, make_layers, make_summary

HOSTILE = "</text><script>alert(1)</script>]]> & \"quotes\" 'too' #5 % url(#x)"
TITLES = {"popqa": HOSTILE, "nq": "NQ"}
LAYERS = {"small": 6}
DRAWN = ("path", "use", "text", "rect", "image")
NUMBER = re.compile(r"-?\d+\.?\d*")


@pytest.fixture(scope="module", params=["honest", "lines", "bars and points"])
def svg(request, tmp_path_factory) -> str:
    """An SVG as matplotlib writes it, with curves and bands, or points, or hatched bars and points as an image."""
    folder = tmp_path_factory.mktemp("figures")
    if request.param == "bars and points":
        figure = Figure()
        panel = figure.subplots()
        panel.bar([0, 1], [2, 3], color=PALETTE[1], hatch="//", edgecolor="white")
        panel.scatter([0, 1], [1, 2], color=PALETTE[0], rasterized=True)
        save(figure, folder / "bars and points.svg", read_style())
    else:
        made = {"summary": make_summary, "layers": make_layers, "deepest": make_deepest, "accounts": make_accounts}
        tables = {name: make(LAYERS, list(TITLES)) for name, make in made.items()}
        write_figure(folder / request.param, tables, {"small": "Small"}, TITLES)
    return (folder / f"{request.param}.svg").read_text(encoding="utf-8")


def elements(svg: str) -> list[tuple[str, dict[str, str], str]]:
    """Everything that is drawn, in order: its tag, attributes and text."""
    found = []
    for node in ElementTree.fromstring(svg).iter():
        attributes = {name.rpartition("}")[2]: value for name, value in node.items()}
        found.append((node.tag.rpartition("}")[2], attributes, node.text or ""))
    return [element for element in found if element[0] in DRAWN]


def declarations(style: str) -> dict[str, str]:
    parts = (part.split(":", 1) for part in style.split(";") if part)
    return {name.strip(): value.strip() for name, value in parts}


def sheet(svg: str) -> tuple[dict[str, dict[str, str]], dict[str, str], dict[str, str]]:
    """The classes of a small SVG, and its variables on a light and on a dark screen."""
    css = re.search("<style>(.*?)</style>", svg)[1]
    light, dark = (declarations(some) for some in re.findall(r"svg\{([^}]*)\}", css))
    assert "@media(prefers-color-scheme:dark){svg{" in css
    assert light.pop("fill") == "var(--0)"
    return {name: declarations(rules) for name, rules in re.findall(r"\.(s\d+)\{([^}]*)\}", css)}, light, dark


def test_positions_are_those_of_the_original_to_a_hundredth_and_texts_are_the_same(svg):
    for (tag, before, said), (small_tag, after, small_said) in zip(
        elements(svg), elements(small_svg(svg)), strict=True
    ):
        assert (tag, said if tag == "text" else "") == (small_tag, small_said)
        if tag == "image":
            assert before["href"] == after["href"]
        for name in ("d", "x", "y", "width", "height", "transform"):
            if before.get(name, "").startswith("rotate(-0 "):
                assert name not in after
                continue
            assert re.findall("[A-Za-z]+", before.get(name, "")) == re.findall("[A-Za-z]+", after.get(name, ""))
            numbers = [list(map(float, NUMBER.findall(some.get(name, "")))) for some in (before, after)]
            assert numbers[0] == pytest.approx(numbers[1], abs=0.00501, rel=0)


def test_on_a_light_screen_everything_has_the_style_of_the_original(svg):
    small = small_svg(svg)
    classes, light, _ = sheet(small)
    for (_, before, _), (_, after, _) in zip(elements(svg), elements(small), strict=True):
        wanted = declarations(before.get("style", "")) | ({"fill": before["fill"]} if "fill" in before else {})
        rules = classes[after["class"]] if wanted else {}
        found = {name: re.sub(r"var\((.*)\)", lambda one: light[one[1]], value) for name, value in rules.items()}
        family = found.pop("font-family", None)
        assert family == (f"{wanted.pop('font-family')},{FALLBACKS}" if family else None)
        for style in (wanted, found):
            if "url(" in style.get("fill", ""):
                style["fill"] = "a pattern"
        assert found == wanted


def test_references_lead_to_what_they_led_to_and_nothing_else_has_a_name(svg):
    small = small_svg(svg)
    rules = dict(re.findall(r"\.(s\d+)\{([^}]*)\}", small))
    inlined = re.sub(r"class='(s\d+)'", lambda found: f'style="{rules[found[1]]}"', small)
    assert referred(inlined) == referred(svg)
    assert len(re.findall(" id='", small)) == len({target for targets in referred(svg) for target in targets})


def referred(svg: str) -> list[list[int]]:
    """What each element refers to, in order, by its place among all that can be referred to."""
    nodes = list(ElementTree.fromstring(svg).iter())
    targets = [node.get("id") for node in nodes if node.tag.endswith(("}path", "}clipPath", "}pattern"))]
    places = {name: place for place, name in enumerate(targets) if name}
    found = [re.findall(r"(?:\n|url\()#(\w+)", "\n".join(["", *node.attrib.values()])) for node in nodes]
    return list(filter(None, (sorted(places[name] for name in names if name in places) for names in found)))


def test_every_colour_has_its_own_for_a_dark_screen(svg):
    _, light, dark = sheet(small_svg(svg))
    assert {light[name]: dark[name] for name in light} == {colour: ON_DARK_PAGE[colour] for colour in light.values()}
    assert len(set(dark.values())) == len(set(light.values())) == len(light)
    outside = re.sub("<style>.*?</style>|<text.*?</text>|href='[^']*'", "", small_svg(svg))
    assert not re.findall("#[0-9a-f]{6}", outside)


@pytest.mark.parametrize("svg", ["honest", "lines"], indirect=True)
def test_a_picture_takes_less_than_half_the_bytes(svg):
    assert len(small_svg(svg)) < len(svg) / 2


@pytest.mark.parametrize("svg", ["bars and points"], indirect=True)
def test_the_same_figure_gives_the_same_bytes(svg):
    code = "import sys; from anchorscope.report.pictures import small_svg; print(small_svg(sys.stdin.read()))"
    for seed in "12":  # of the order of sets
        command = [sys.executable, "-c", code]
        made = subprocess.run(
            command, input=svg, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert made.stdout.strip() == small_svg(svg)


@pytest.mark.parametrize("svg", ["honest"], indirect=True)
def test_a_hostile_title_stays_a_text_and_the_address_holds_nothing_that_html_or_srcset_reads(svg):
    small = small_svg(svg)
    said = " ".join(text for tag, _, text in elements(small) if tag == "text")
    assert all(word in said for word in HOSTILE.split())
    assert "<script" not in small
    uri = svg_uri(small)
    head, encoded = uri.split(",", 1)
    assert head == "data:image/svg+xml"
    assert unquote(encoded) == small
    assert not set(uri) & set(' \n\t"<>&#')
    assert not uri.endswith(","), "srcset would take it for its own"


def test_a_figure_that_is_too_large_as_an_svg_is_shown_as_a_picture_of_points(tmp_path):
    Image.fromarray(np.full((4, 6, 3), 200, dtype=np.uint8)).save(tmp_path / "lines.png")
    for points, wide, narrow in (
        (10, "data:image/svg+xml,", "data:image/svg+xml,"),
        (LARGEST_SVG // 4, "data:image/webp;", ""),
    ):
        path = f"<path d='M 0 0 {'L 1 2 ' * points}'/>"
        for width in ("", "_column"):
            (tmp_path / f"lines{width}.svg").write_text(f"<svg xmlns='http://www.w3.org/2000/svg'>{path}</svg>")
        (picture,) = make_pictures({"one": [tmp_path / "lines"]}, {"one": "One"}, tmp_path / "report.html")["one"]
        assert picture.source.startswith(wide)
        assert picture.narrow.startswith(narrow)
        assert bool(picture.narrow) == bool(narrow)
        assert str(figures_section({"one": [picture]})).count("<source") == bool(narrow)


def test_figures_are_found_once_whatever_their_widths_and_formats():
    files = [
        f"results/figures/{models}/{kind}{width}{end}"
        for models in ("one", "two.five")
        for kind in ("honest", "answer_only")
        for width in ("", "_column")
        for end in (".svg", ".png")
    ]
    found = {name: [figure.as_posix() for figure in figures] for name, figures in by_set(files).items()}
    assert found == {
        name: [f"results/figures/{name}/honest", f"results/figures/{name}/answer_only"] for name in ("one", "two.five")
    }
