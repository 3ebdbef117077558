"""Colours on a dark page, from those on a white one."""

from colorsys import hls_to_rgb, rgb_to_hls

import numpy as np
from matplotlib.colors import to_hex, to_rgb

from anchorscope.draw.panels import PALETTE

PAGE, TEXT = "#15171a", "#e4e6ea"  # of the report in the dark; they stand for white and black
LEAST = 4.5  # contrast with the page, as for text
LEAST_ON_WHITE = 3.0  # contrast of colours in figures
BENT = 0.75  # how much faster contrast grows on white than in the dark, which has less room for it
# For the colours of datasets, in their order: colour-blind readers tell these apart, too (a test simulates them).
DARK_PALETTE = ("#187dff", "#f26d17", "#3ec77a", "#c759b8", "#e8d5ed", "#cb8dbf", "#f3b5fa", "#9da4f9")
GREYISH = 0.1  # red, green and blue of a grey lie no farther apart


def contrast(colour: str, other: str) -> float:
    """The ratio of two colours' brightness as the web's guidelines compute it: from 1 to 21."""
    dark, bright = sorted(map(_brightness, (colour, other)))
    return (bright + 0.05) / (dark + 0.05)


def _brightness(colour: str) -> float:
    screen = np.array(to_rgb(colour))
    light = np.where(screen <= 0.04045, screen / 12.92, ((screen + 0.055) / 1.055) ** 2.4)
    return float(light @ [0.2126, 0.7152, 0.0722])


def for_dark(colour: str) -> str:
    """The same hue on the dark page, and never darker than it was.

    The more a colour stands out on white, the more it does here, so that colours that differ by brightness alone are
    still told apart. Greys change places: white becomes the page, black its text.
    """
    if colour in PALETTE:
        return DARK_PALETTE[PALETTE.index(colour)]
    red_green_blue = to_rgb(colour)
    if max(red_green_blue) - min(red_green_blue) <= GREYISH:
        page, text = np.array(to_rgb(PAGE)), np.array(to_rgb(TEXT))
        return to_hex(text + np.mean(red_green_blue) * (page - text))
    stands_out = LEAST * (contrast(colour, "white") / LEAST_ON_WHITE) ** BENT
    wanted = max(LEAST, contrast(colour, PAGE), stands_out)
    hue, _, saturation = rgb_to_hls(*red_green_blue)
    shades = (to_hex(hls_to_rgb(hue, step / 255, saturation)) for step in range(256))
    return next((shade for shade in shades if contrast(shade, PAGE) >= wanted), "#ffffff")
