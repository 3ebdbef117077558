"""The report in a real browser: it asks for nothing, answers to menus, pointer and legend, and fits a phone."""

import base64
import io
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from markupsafe import Markup
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from anchorscope.draw.style import DARK_PAGE
from anchorscope.report.examples import examples_section
from anchorscope.report.figures import Picture, figures_section, make_pictures
from anchorscope.report.page import Section, page
from eyes import contrast
from read_figures import write_figure
from small_things import one_at_a_time
from synthetic_run import examples_of_run, make_accounts, make_deepest, make_layers, make_summary, sections
from tokenizer_files import from_npm

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
HOSTILE = "</script><img src=x onerror=alert(1)><!--"
HOSTILE_WORDS = f"{HOSTILE} & \"quotes\" 'too' <b>bold</b>"
LAYERS = {"small": 6, "random": 9}
TITLES = {"popqa": "PopQA", "odd": HOSTILE, "hotpotqa": "HotpotQA", "nq": "NQ"}
POINTS = "[...document.querySelectorAll('#chart .points_marks path')].map((path) => path.__data__.datum)"
WIDTHS = (375, 1280)
CHART_DRAWN = "#chart[data-columns] .points_marks path"
CURVE_DRAWN = "#example svg[role=img]"
AXE = "axe-core@4.14.0"
UNFOLD = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: tests/install_chromium.sh installs it")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def axe(request) -> str:
    """The script that finds what keeps people from reading a page, kept in pytest's own cache."""
    folder = request.config.cache.mkdir("axe")
    script = folder / "package/axe.min.js"
    try:
        with one_at_a_time("axe"):
            if not script.is_file():
                from_npm(folder, AXE)
    except RuntimeError as error:
        pytest.skip(f"{AXE} cannot be fetched: {error}")
    return script.read_text(encoding="utf-8")


@contextmanager
def opened(
    browser: Browser, file: Path, width: int = 1280, scheme: str = "light", drawn: str = CHART_DRAWN
) -> Iterator[Page]:
    """A page opened from the disk, its chart drawn; nothing may go wrong on it, and nothing be asked for."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
    context.set_default_timeout(120_000)
    tab, trouble = context.new_page(), []
    tab.on("console", lambda message: trouble.append(message.text))
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on("dialog", lambda dialog: trouble.append(dialog.message))
    tab.on("request", lambda request: None if request.url == file.as_uri() else trouble.append(request.url))
    tab.goto(file.as_uri())
    tab.wait_for_selector(drawn, state="attached")
    yield tab
    context.close()
    assert [said for said in trouble if not said.startswith("data:")] == []


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    """The page of two models and four datasets."""
    folder = tmp_path_factory.mktemp("synthetic")
    (folder / "report.html").write_text(page(Markup(""), sections(folder, LAYERS, TITLES)), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture(scope="module")
def summary() -> pl.DataFrame:
    return make_summary(LAYERS, list(TITLES))


@pytest.fixture
def tab(browser, synthetic) -> Iterator[Page]:
    with opened(browser, synthetic) as tab:
        yield tab


def choose(tab: Page, menu: str, label: str) -> None:
    """Pick from a menu by its words, and wait until the chart shows something else."""
    before = tab.inner_html("#chart svg.marks")
    tab.locator(f"select[name=chosen_{menu}]").select_option(label=label)
    tab.wait_for_function("before => document.querySelector('#chart svg.marks')?.innerHTML !== before", arg=before)
    tab.wait_for_selector("#chart .points_marks path", state="attached")


def shown(tab: Page) -> set[tuple]:
    """What tells the points on the screen apart, and their values."""
    names = ("model", "dataset", "anchor", "layer", "n", "delta_p")
    return {tuple(point[name] for name in names) for point in tab.evaluate(POINTS)}


def legend_entry(tab: Page, label: str) -> Locator:
    return tab.locator("#chart .role-legend-label text").get_by_text(label, exact=True)


def expected(summary: pl.DataFrame, models: dict[str, str], datasets: dict[str, str], **chosen: str) -> set[tuple]:
    """The same from the summary."""
    rows = summary.filter(pl.col("anchor").is_in(["question", "answer"]), **chosen).drop_nulls("delta_p")
    rows = rows.filter(pl.col("model").is_in(list(models)), pl.col("dataset").is_in(list(datasets)))
    return {
        (
            models[row["model"]],
            datasets[row["dataset"]],
            row["anchor"],
            row["layer"],
            row["n"],
            round(row["delta_p"], 1),
        )
        for row in rows.iter_rows(named=True)
    }


FIRST = {"component": "resid", "position": "answer_last", "rule": "honest", "intervention": "exact_question"}
FIRST |= {"labels": "plotted", "logits": "measured"}
MODELS = {"small": "Small", "random": "Random (random weights)"}


def test_a_real_runs_page_shows_its_summary_and_asks_for_nothing(browser, finished):
    summary = pl.read_parquet(finished / "results/summary.parquet")
    with opened(browser, finished / "results/report.html") as tab:
        found = expected(summary, {"tiny": "Tiny"}, {"one": "ONE", "two": "TWO"}, **FIRST)
        assert shown(tab) == found
        choose(tab, "rule", "flip")
        assert shown(tab) == expected(
            summary, {"tiny": "Tiny"}, {"one": "ONE", "two": "TWO"}, **{**FIRST, "rule": "flip"}
        )
        for width in WIDTHS:
            tab.set_viewport_size({"width": width, "height": 900})
            assert tab.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
@pytest.mark.parametrize(
    ("menu", "label", "chosen", "models", "datasets"),
    [
        ("model", "Random (random weights)", {}, ["random"], list(TITLES)),
        ("dataset", HOSTILE, {}, list(MODELS), ["odd"]),
        ("component", "mlp", {"component": "mlp"}, list(MODELS), list(TITLES)),
        ("position", "final", {"position": "final"}, list(MODELS), list(TITLES)),
        (
            "rule",
            "fixed",
            {"rule": "fixed", "labels": "reference"},
            list(MODELS),
            list(TITLES),
        ),
        (
            "logits",
            "recentred",
            {"logits": "recentred"},
            list(MODELS),
            list(TITLES),
        ),
        (
            "intervention",
            "control: other words",
            {"intervention": "random_question"},
            list(MODELS),
            list(TITLES),
        ),
    ],
)
def test_every_menu_changes_the_chart_to_what_the_summary_has(tab, summary, menu, label, chosen, models, datasets):
    assert shown(tab) == expected(summary, MODELS, TITLES, **FIRST)
    choose(tab, menu, label)
    some = [{name: titles[name] for name in names} for titles, names in ((MODELS, models), (TITLES, datasets))]
    assert shown(tab) == expected(summary, *some, **{**FIRST, **chosen})
    assert tab.locator(f"select[name=chosen_{menu}]").evaluate("menu => menu.selectedOptions[0].label") == label


@pytest.mark.slow
def test_a_point_tells_its_numbers(tab):
    place = 5
    point = tab.evaluate(POINTS)[place]
    tab.locator("#chart .points_marks path").nth(place).hover(force=True)
    tab.wait_for_selector("#vg-tooltip-element.visible")
    told = dict(
        zip(
            tab.locator("#vg-tooltip-element .key").all_inner_texts(),
            tab.locator("#vg-tooltip-element .value").all_inner_texts(),
            strict=True,
        )
    )
    points = {(one["model"], one["series"], one["layer"]): one for one in tab.evaluate(POINTS)}
    found = points[point["model"], told["Series"], int(told["Layer"])]
    assert told["n"] == str(found["n"])
    assert told["ΔP"] == f"{found['delta_p']:+.1f}".replace("-", "−")
    assert told["Δlogit"] == f"{found['delta_logit']:+.2f}".replace("-", "−")
    assert told["95 % interval"] == f"{found['low']:+.1f} … {found['high']:+.1f}".replace("-", "−")


@pytest.mark.slow
def test_a_click_on_the_legend_hides_a_series_and_another_shows_it_again(tab):
    everything = shown(tab)
    entry = legend_entry(tab, "Q PopQA")
    for left in (
        {point for point in everything if (point[1], point[2]) != ("PopQA", "question")},
        everything,
    ):
        entry.click()
        tab.wait_for_function(f"{POINTS}.length === {len(left)}")
        assert shown(tab) == left


@pytest.mark.slow
def test_what_was_chosen_stays_when_the_window_or_the_models_change(tab):
    choose(tab, "component", "attn")
    legend_entry(tab, "Q PopQA").click()
    choose(tab, "model", "Small")
    tab.set_viewport_size({"width": 375, "height": 900})
    tab.wait_for_function("document.querySelector('#chart svg.marks').clientWidth < 375")
    points = tab.evaluate(POINTS)
    assert {point["component"] for point in points} == {"attn"}
    assert {point["model"] for point in points} == {"Small"}
    assert "Q PopQA" not in {point["series"] for point in points}


@pytest.mark.slow
def test_panels_are_named_and_axes_count_layers(tab):
    texts = tab.locator("#chart svg.marks text").all_text_contents()
    assert {"Small", "Random (random weights)", "Layer", "ΔP or Δlogit", "Q PopQA", "A NQ"} <= set(texts)
    ticks = tab.locator("#chart .role-axis-label text").all_text_contents()
    assert all(tick.replace("−", "-").lstrip("-").isdigit() for tick in ticks)


@pytest.mark.slow
def test_dark_mode_turns_page_and_axes_light_on_dark(browser, synthetic):
    for scheme, dark in (("light", False), ("dark", True)):
        with opened(browser, synthetic, scheme=scheme) as tab:
            back = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            text = tab.locator("#chart .role-axis-label text").first.evaluate("node => getComputedStyle(node).fill")
        assert (_brightness(back) < 0.3) == dark
        assert (_brightness(text) > 0.7) == dark


@pytest.fixture(scope="module")
def pictured(tmp_path_factory) -> tuple[Path, Picture]:
    """A page with one figure."""
    folder = tmp_path_factory.mktemp("pictured")
    made = {"summary": make_summary, "layers": make_layers, "deepest": make_deepest, "accounts": make_accounts}
    tables = {name: make(LAYERS, list(TITLES)) for name, make in made.items()}
    figure = write_figure(folder / "push", tables, MODELS, TITLES)
    pictures = make_pictures({"both": [figure]}, {"both": HOSTILE}, folder / "report.html")
    (folder / "report.html").write_text(page(Markup(""), [Section("Figures", figures_section(pictures))]))
    return folder / "report.html", pictures["both"][0]


@pytest.mark.parametrize(("width", "shown"), [(390, "narrow"), (1280, "source")])
def test_a_figure_fits_the_screen_and_is_dark_where_the_page_is(browser, pictured, width, shown):
    file, picture = pictured
    for scheme, back, ink in (("light", 255, 0x26), ("dark", 0x18, 0xC5)):
        with opened(browser, file, width, scheme, drawn="figure img") as tab:
            image = tab.locator("figure img")
            assert image.evaluate("node => node.currentSrc") == getattr(picture, shown)
            pixels = np.array(Image.open(io.BytesIO(image.screenshot())).convert("RGB")).astype(int)
            page_colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        assert f"rgb({', '.join(map(str, pixels[2, pixels.shape[1] // 2]))})" == page_colour
        assert tuple(np.median(pixels.reshape(-1, 3), axis=0)) == tuple(pixels[2, pixels.shape[1] // 2])
        grey = pixels[np.ptp(pixels, axis=2) <= 8].mean(axis=1)
        farthest = grey[np.argmax(np.abs(grey - back))]
        assert abs(farthest - ink) < 25, "the darkest, or lightest, grey is that of the texts"


def _brightness(colour: str) -> float:
    numbers = colour.removeprefix("rgb(").removesuffix(")").split(",")
    return sum(map(float, numbers)) / (3 * 255)


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_does_not_scroll_sideways(browser, synthetic, width):
    with opened(browser, synthetic, width) as tab:
        tab.evaluate(UNFOLD)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.get_attribute("#chart", "data-columns") == ("1" if width == min(WIDTHS) else "2")
        box = tab.locator("#chart svg.marks").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def hindrances(tab: Page, axe: str) -> list[str]:
    """What keeps people from reading a page, as far as a script can find it; everything is unfolded.

    A shadow behind a table hides from the script what colour its text stands on, and so does what fades.
    """
    tab.evaluate(UNFOLD)
    tab.add_style_tag(content=".wide { background: none !important; } * { transition: none !important; }")
    tab.evaluate(axe)
    found = tab.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    return [
        f"{one['id']}: {node['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.parametrize(
    ("width", "scheme"),
    [
        (WIDTHS[0], "dark"),
        pytest.param(WIDTHS[-1], "light", marks=pytest.mark.slow),
        pytest.param(WIDTHS[0], "light", marks=pytest.mark.slow),
        pytest.param(WIDTHS[-1], "dark", marks=pytest.mark.slow),
    ],
)
def test_nothing_keeps_people_from_reading_the_page(browser, synthetic, axe, width, scheme):
    with opened(browser, synthetic, width, scheme) as tab:
        assert hindrances(tab, axe) == []
        tab.add_style_tag(content=":root { --soft: var(--line); }")
        assert any(said.startswith("color-contrast") for said in hindrances(tab, axe)), "the script can find some"


@pytest.mark.parametrize("width", WIDTHS)
def test_no_option_of_a_menu_is_cut_off(browser, synthetic, width):
    """A menu that is as wide as its options has the width that it would have if nothing held it back."""
    with opened(browser, synthetic, width) as tab:
        cut = """() => [...document.querySelectorAll("#menus select")].filter((menu) => {
            const held = menu.clientWidth;
            menu.style.cssText = "width: max-content; max-width: none";
            return menu.clientWidth > held;
        }).map((menu) => menu.name)"""
        assert [name for name in tab.evaluate(cut) if name != "chosen_dataset"] == [], "a hostile title may be"


@pytest.mark.slow
def test_a_tooltip_goes_when_a_menu_changes(tab):
    tab.locator("#chart .points_marks path").nth(5).hover(force=True)
    tab.wait_for_selector("#vg-tooltip-element.visible")
    tab.locator("select[name=chosen_rule]").press("f")
    tab.wait_for_selector("#vg-tooltip-element:not(.visible)", state="attached")


def test_the_legend_names_the_grey_bands(tab):
    assert legend_entry(tab, "if one mechanism").count() == 1


def test_curves_stand_out_in_the_dark_and_print_as_on_white(browser, synthetic):
    strokes = "[...document.querySelectorAll('#chart .curves_marks path')].map((path) => getComputedStyle(path).stroke)"
    with opened(browser, synthetic, scheme="dark") as tab:
        dark = set(tab.evaluate(strokes))
        tab.emulate_media(media="print")
        printed = set(tab.evaluate(strokes))
    with opened(browser, synthetic) as tab:
        assert set(tab.evaluate(strokes)) == printed
    assert len(dark) == len(printed) == len(TITLES)
    assert min(contrast(_hex(colour), DARK_PAGE) for colour in dark) >= 4.5


def _hex(colour: str) -> str:
    red, green, blue = (int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
    return f"#{red:02x}{green:02x}{blue:02x}"


def test_print_shows_what_is_folded_and_no_controls_light_on_any_screen(browser, synthetic):
    seen = """() => {
        const rows = [...document.querySelectorAll("details table tbody tr")];
        return rows.filter((row) => !row.checkVisibility({contentVisibilityAuto: true})).length;
    }"""
    with opened(browser, synthetic, scheme="dark") as tab:
        tab.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = false; })")
        assert tab.evaluate(seen) > 0
        tab.emulate_media(media="print")
        # The table of one example's numbers is left out, as it is on every other one. What unfolds is drawn in the
        # next frame.
        printed = seen.replace("details table", "details table:not(#example table)")
        tab.wait_for_function(f"({printed})() === 0")
        for control in ("#contents", "#menus", "#explore", ".matches", "#chart summary"):
            assert tab.locator(control).first.is_hidden(), control
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(28, 30, 33)"
        pages = tab.pdf().count(b"/Type /Page\n")
        tab.add_style_tag(content="details:not([open])::details-content { content-visibility: hidden !important; }")
        assert tab.pdf().count(b"/Type /Page\n") < pages, "what is folded takes pages"


def test_nothing_goes_wrong_while_the_page_has_no_width(browser, synthetic):
    with opened(browser, synthetic) as tab:
        for style in ("#page { display: none; }", "#page { display: block; }"):
            tab.add_style_tag(content=style)
            tab.wait_for_timeout(500)
        assert tab.locator(CURVE_DRAWN).is_visible()
        assert tab.locator("#chart svg.marks").is_visible()


def test_a_table_that_scrolls_keeps_the_name_of_a_row_in_sight_and_shows_that_there_is_more(browser, synthetic):
    with opened(browser, synthetic, width=min(WIDTHS)) as tab:
        box = tab.locator("#what-survives .wide").first
        name = box.locator("tbody tr:nth-child(2) td").first
        before = name.bounding_box()["x"]
        more = box.screenshot()
        box.evaluate("node => { node.scrollLeft = node.scrollWidth; }")
        assert name.bounding_box()["x"] == before
        assert box.screenshot() != more
        edge = "node => node.scrollLeft + node.clientWidth >= node.scrollWidth - 1"
        assert box.evaluate(edge)


@pytest.mark.slow
def test_the_chart_shows_the_change_of_the_logit_on_its_own_axis(tab):
    choose(tab, "quantity", "Δlogit")
    for point in tab.evaluate(POINTS):
        assert point["change"] == point["delta_logit"]
    ticks = [float(text.replace("−", "-")) for text in tab.locator("#chart .role-axis-label text").all_text_contents()]
    assert min(ticks) > -10, "logits, not points"


@pytest.fixture(scope="module")
def examples_page(tmp_path_factory) -> Path:
    """A page with examples of two models and four datasets, and nothing else."""
    folder = tmp_path_factory.mktemp("examples")
    section = Section("Explore an example", examples_section(examples_of_run(folder, LAYERS, TITLES, HOSTILE_WORDS)))
    (folder / "report.html").write_text(page(Markup(""), [section]), encoding="utf-8")
    return folder / "report.html"


@pytest.fixture
def explorer(browser, examples_page) -> Iterator[Page]:
    with opened(browser, examples_page, drawn=CURVE_DRAWN) as tab:
        yield tab


def embedded_data(tab: Page) -> dict:
    """What the page carries for the explorer of examples."""
    return json.loads(tab.locator("#examples-data").text_content())


def filtered(tab: Page, name: str, value: str) -> None:
    """Pick from a filter of the explorer. How long the answer takes is printed, not judged."""
    start = time.perf_counter()
    tab.locator(f"#explore select[name={name}]").select_option(value)
    tab.locator(CURVE_DRAWN).wait_for()
    print(f"{name} = {value}: {1000 * (time.perf_counter() - start):.0f} ms")


def drawn_probabilities(tab: Page, kind: str) -> list[float]:
    """The heights of a curve's points between the lines at 0 and 1."""
    zero, one = (float(tab.locator("#example .curve line.grid").nth(number).get_attribute("y1")) for number in (0, 1))
    path = tab.locator(f"#example .curve path[class='{kind}']").get_attribute("d")
    heights = [float(point.split(",")[1]) for point in path.removeprefix("M").split("L")]
    return [(zero - height) / (zero - one) for height in heights]


def test_three_choices_lead_to_the_curve_of_an_example(explorer):
    filtered(explorer, "dataset", "HotpotQA")
    filtered(explorer, "form", "choice")
    filtered(explorer, "anchor", "question")
    data = embedded_data(explorer)
    pairs = data["pairs"]
    wanted = [
        example
        for example in data["examples"]
        if (example["form"], example["anchor"]) == ("choice", "question")
        and pairs[example["pair"]]["dataset"] == "HotpotQA"
    ]
    assert explorer.inner_text("#matching").startswith(f"{len(wanted)} of 2,000 ")
    for number in (0, 2):
        if number:
            explorer.locator("#matches button").nth(number).press("Enter")
        example = wanted[number]
        assert explorer.text_content("#example .question") == "".join(example["question"])
        mean = pairs[example["pair"]]["means"]["question"]["curve"]
        for kind, curve in (("", example["curve"]), (" mean", mean)):
            values = [byte / 255 for byte in base64.b64decode(curve)]
            drawn = drawn_probabilities(explorer, f"clean{kind}") + drawn_probabilities(explorer, f"cut{kind}")
            assert drawn == pytest.approx(values, abs=0.001)
        layer = pairs[example["pair"]]["layer"]
        clean, cut = (base64.b64decode(example["curve"])[place] / 255 for place in (layer, layer + LAYERS["small"]))
        said = explorer.locator(CURVE_DRAWN).get_attribute("aria-label")
        assert f"At layer {layer}, this example, clean: {clean:.2f}; this example, question cut: {cut:.2f};" in said
        assert f"{clean:.2f} clean → {cut:.2f} cut; the probe’s verdict flips." in explorer.inner_text("#example")


def test_texts_of_an_example_are_shown_as_they_are(explorer):
    explorer.fill("#explore input[name=text]", "NOBODY and 2 more")
    assert explorer.inner_text("#matching") == "2,000 of 2,000 examples match"
    explorer.fill("#explore input[name=text]", HOSTILE_WORDS)
    assert explorer.text_content("#example .question").endswith(f" northern islands {HOSTILE_WORDS}")
    assert f" {HOSTILE_WORDS} " in explorer.text_content("#example p:nth-of-type(3)")
    assert HOSTILE_WORDS in explorer.locator("#matches button").first.text_content()
    assert explorer.locator("#explored img, #explored script, #explored b:not(p > b)").count() == 0
    assert explorer.locator("#example .question mark").all_text_contents()[0] == "wrote"


def test_the_list_grows_and_its_filters_are_cleared(explorer):
    assert explorer.locator("#matches button").count() == 50
    explorer.click("#more")
    assert explorer.locator("#matches button").count() == 100
    focused = "[...document.querySelectorAll('#matches button')].indexOf(document.activeElement)"
    assert explorer.evaluate(focused) == 50
    explorer.fill("#explore input[name=text]", "no such words")
    assert explorer.inner_text("#example") == "No example matches these filters."
    assert explorer.is_hidden("#more")
    explorer.click("#explore button[type=reset]")
    explorer.wait_for_selector(CURVE_DRAWN)
    assert explorer.inner_text("#matching") == "2,000 of 2,000 examples match"


def test_a_chosen_layer_keeps_what_flips_there(explorer):
    layer, half = 1, 128
    filtered(explorer, "flipped", str(layer))
    data = embedded_data(explorer)
    flipping = 0
    for example in data["examples"]:
        curve = base64.b64decode(example["curve"])
        flipping += (curve[layer] >= half) != (curve[layer + len(curve) // 2] >= half)
    assert explorer.inner_text("#matching").startswith(f"{flipping:,} of 2,000 ")
    assert f"P(hallucinated) at layer {layer}:" in explorer.inner_text("#example")


def test_without_scripts_the_first_examples_are_there(browser, examples_page):
    context = browser.new_context(java_script_enabled=False, offline=True)
    tab = context.new_page()
    tab.goto(examples_page.as_uri())
    assert tab.locator("#explore-an-example .asked li").first.is_visible()
    assert tab.is_hidden("#explore")
    context.close()
