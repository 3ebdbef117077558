"""Colours of figures on a dark page: they stand out, and are the hues that they were."""

import re
from colorsys import rgb_to_hls

import pytest
from matplotlib.colors import TABLEAU_COLORS, to_rgb

from anchorscope.draw.dark import PAGE, TEXT, contrast, for_dark
from anchorscope.draw.panels import PALETTE
from anchorscope.report.page import FOLDER
from eyes import EYES, nearest

HUE_STEP = 1 / 60  # what rounding to 256 steps of red, green and blue may turn a pale colour


def test_contrast_is_that_of_the_guidelines():
    """Black on white has the most there is; #767676 is the lightest grey that they allow for text on white."""
    assert contrast("black", "white") == contrast("white", "black") == 21
    assert contrast("#767676", "white") > 4.5 > contrast("#777777", "white")


@pytest.mark.parametrize("colour", [*PALETTE, *TABLEAU_COLORS])
def test_a_colour_stands_out_in_the_dark_and_keeps_its_hue(colour):
    found = for_dark(colour)
    assert contrast(found, PAGE) >= (4.5 if colour != "tab:gray" else 3.0)
    if colour != "tab:gray":
        hues = [rgb_to_hls(*to_rgb(one))[0] for one in (colour, found)]
        assert abs(hues[0] - hues[1]) < HUE_STEP
        assert contrast(found, PAGE) >= contrast(colour, PAGE), "it is not darker"


@pytest.mark.parametrize("eyes", EYES)
def test_datasets_have_colours_that_every_reader_tells_apart_in_the_dark(eyes):
    """As on white: ten units of L*a*b* are told apart at a glance, and the first four datasets have twice that."""
    assert nearest(map(for_dark, PALETTE[:4]), eyes) > 20
    assert nearest(map(for_dark, PALETTE), eyes) > 10


def test_white_becomes_the_page_black_its_text_and_greys_lie_between():
    assert (for_dark("white"), for_dark("black")) == (PAGE, TEXT)
    shades = [contrast(for_dark(grey), PAGE) for grey in ("0.9", "0.6", "0.4", "0.1")]
    assert shades == sorted(shades)


def test_the_dark_page_and_its_text_are_those_of_the_style_sheet():
    dark = (FOLDER / "page.css").read_text().split("prefers-color-scheme: dark", 1)[1]
    assert re.search(r"--text: (#\w+);.*--page: (#\w+);", dark).groups() == (TEXT, PAGE)
