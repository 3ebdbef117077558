"""Colours of figures on a white and on a dark page: they stand out, and readers tell them apart."""

import re
from colorsys import rgb_to_hls

import pytest
from matplotlib.colors import to_rgb

from anchorscope.draw.style import DARK_PAGE, DARK_TEXT, PALETTE, PUBLISHED_COLOURS, on_dark_page
from anchorscope.report.page import FOLDER
from eyes import EYES, contrast, nearest

HUE_STEP = 1 / 60  # what rounding to 256 steps of red, green and blue may turn a pale colour
GRAY = PUBLISHED_COLOURS[7]


def test_contrast_is_that_of_the_guidelines():
    """Black on white has the most there is; #767676 is the lightest grey that they allow for text on white."""
    assert contrast("black", "white") == contrast("white", "black") == pytest.approx(21)
    assert contrast("#767676", "white") > 4.5 > contrast("#777777", "white")


@pytest.mark.parametrize("colour", [*PALETTE, *PUBLISHED_COLOURS])
def test_a_colour_stands_out_in_the_dark_and_keeps_its_hue(colour):
    dark = on_dark_page(colour)
    assert contrast(dark, DARK_PAGE) >= (4.5 if colour != GRAY else 3.0)
    if colour != GRAY:
        before, after = (rgb_to_hls(*to_rgb(some))[0] for some in (colour, dark))
        assert abs(before - after) < HUE_STEP
        assert contrast(dark, DARK_PAGE) >= contrast(colour, DARK_PAGE), "it is not darker"


@pytest.mark.parametrize("eyes", EYES)
def test_datasets_have_colours_that_every_reader_tells_apart_in_the_dark(eyes):
    """As on white: ten units of L*a*b* are told apart at a glance, and the first four datasets have twice that."""
    assert nearest(map(on_dark_page, PALETTE[:4]), eyes) > 20
    assert nearest(map(on_dark_page, PALETTE), eyes) > 10


def test_white_becomes_the_page_black_its_text_and_greys_lie_between():
    assert (on_dark_page("white"), on_dark_page("black")) == (DARK_PAGE, DARK_TEXT)
    shades = [contrast(on_dark_page(grey), DARK_PAGE) for grey in ("0.9", "0.8", "0.75", "0.6", "0.5", "0.4", "0.15")]
    assert shades == sorted(shades)


def test_a_colour_of_a_style_of_ones_own_stays_in_the_dark():
    assert on_dark_page("rebeccapurple") == "#663399"


def test_the_dark_page_and_its_text_are_those_of_the_style_sheet():
    dark = (FOLDER / "page.css").read_text().split("prefers-color-scheme: dark", 1)[1]
    assert re.search(r"--text: (#\w+);.*--page: (#\w+);", dark).groups() == (DARK_TEXT, DARK_PAGE)
