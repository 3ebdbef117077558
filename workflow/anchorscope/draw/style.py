"""The style of figures: matplotlib's settings from a style file, and the colours of curves on white and dark pages."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from logging.handlers import BufferingHandler
from pathlib import Path

import matplotlib
import matplotlib.style
from cycler import cycler
from matplotlib.colors import to_hex

from anchorscope.files.bundled import RESOURCES
from anchorscope.files.faults import fault_of_file, shortened

BUNDLED_STYLE = RESOURCES / "figures.mplstyle"
FAINT, BAND_OPACITY = 0.25, 0.15  # opacity
COLUMN = 3.3  # inches: one column of a two-column page
COLUMN_SCALE = 0.85  # type and lines are that much smaller there, and the smallest type still 5.6 points
Dashes = tuple[float, ...]  # lengths of dashes and gaps, in widths of the line
SOLID: Dashes = ()
DASHED, DOTTED, DASH_DOTTED = (3.7, 1.6), (1.0, 1.65), (6.4, 1.6, 1.0, 1.6)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # one per dataset, or other series

# One colour per dataset, or other series. Colour-blind readers tell them apart on both pages, as tests simulate.
# The published figure has matplotlib's colours instead, which it was drawn with.
PALETTE = ("#126df5", "#dd6f23", "#0d5326", "#984f92", "#480a55", "#b57baf", "#77108b", "#2d3acc")
DARK_PALETTE = ("#187dff", "#f26d17", "#3ec77a", "#c759b8", "#e8d5ed", "#cb8dbf", "#f3b5fa", "#9da4f9")
PUBLISHED_COLOURS = tuple(matplotlib.color_sequences["tab10"])
DARK_PUBLISHED_COLOURS = (
    *("#48a2e0", "#ff800f", "#2ca02c", "#e88081", "#a984ca"),
    *("#c79f97", "#e377c2", "#7d7f82", "#bdbe22", "#17becf"),
)
INK, GREY, AXIS_GREY, PALE, GRID = "0.15", "0.4", "0.6", "0.75", "0.9"  # from text to the lines of the grid
GREYS = ("black", INK, GREY, "0.5", AXIS_GREY, PALE, "0.8", GRID, "white")
DARK_PAGE, DARK_TEXT = "#15171a", "#e4e6ea"
DARK_GREYS = (DARK_TEXT, "#c5c7cb", "#919397", "#7d7e82", "#686a6d", "#494b4e", "#3e4044", "#2a2c2f", DARK_PAGE)
LIGHT_COLOURS = tuple(map(to_hex, (*PALETTE, *PUBLISHED_COLOURS, *GREYS)))
DARK_COLOURS = (*DARK_PALETTE, *DARK_PUBLISHED_COLOURS, *DARK_GREYS)
ON_DARK_PAGE = dict(zip(LIGHT_COLOURS, DARK_COLOURS, strict=True))

FIXED = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "anchorscope",  # the same figure gives the same file
    "text.usetex": False,  # LaTeX would read and write whatever files a style tells it to
    "text.parse_math": False,  # dollar signs in a title do not make it a formula
    "figure.autolayout": False,  # `facets.facet` lays the figure out
    "figure.constrained_layout.use": False,
}
LOOKS = ("axes.", "figure.", "font.", "grid.", "legend.", "lines.", "patch.", "text.", "xtick.", "ytick.")


@dataclass(frozen=True)
class Style:
    """A style file at the width of a page or of a column."""

    params: dict  # of matplotlib
    published: tuple[str, ...]  # colours of the published figure: two per dataset
    colours: tuple[str, ...]  # of datasets, or other series, in all other figures
    width: float  # inches
    height: float  # inches of one row of panels


def on_dark_page(colour: str) -> str:
    """Return the colour that stands for another one on a dark page; one that is in no palette stays."""
    return ON_DARK_PAGE.get(to_hex(colour), to_hex(colour))


def changed_settings() -> dict:
    """Return the settings on looks in which matplotlib's rcParams differ from its defaults."""
    settings, defaults = matplotlib.rcParams, matplotlib.rcParamsDefault
    return {name: settings[name] for name in defaults if name.startswith(LOOKS) and settings[name] != defaults[name]}


def read_style(path: Path | str | None = None, column: bool = False, changed: Mapping | None = None) -> Style:
    """Read a style file, or one of matplotlib's styles by its name; without `path`, the bundled one, with changes."""
    bundled = _read_params(BUNDLED_STYLE)
    if path is None:
        params = {**bundled, **(changed or {})}
    elif str(path) in matplotlib.style.library:
        params = {**bundled, **matplotlib.style.library[str(path)]}
    else:
        if fault := fault_of_file(path):
            raise ValueError(f"{shortened(path)} {fault}, and matplotlib has no style of that name.")
        params = _read_params(Path(path))
    params = {**params, **FIXED}
    with matplotlib.rc_context(params):
        settings = dict(matplotlib.rcParams)
    cycle = settings["axes.prop_cycle"]
    published = tuple(map(to_hex, cycle.by_key().get("color", PUBLISHED_COLOURS)))
    is_bundled_cycle = cycle == bundled["axes.prop_cycle"]
    colours = PALETTE if is_bundled_cycle else published[::2]  # whoever brings colours sees them in every figure
    params["axes.prop_cycle"] = cycler(color=published)  # what else a cycle has would come on top of our lines
    if settings["savefig.dpi"] == "figure":
        params["savefig.dpi"] = settings["figure.dpi"]
    width, height = settings["figure.figsize"]
    if column:
        for name in ("font.size", "lines.linewidth", "lines.markersize"):
            params[name] = COLUMN_SCALE * settings[name]
        width, height = COLUMN, COLUMN_SCALE * height
    return Style(params=params, published=published, colours=colours, width=width, height=height)


def _read_params(path: Path) -> dict:
    # Matplotlib only logs what it finds wrong with a style file.
    complaints, logger = BufferingHandler(capacity=10_000), logging.getLogger("matplotlib")
    complaints.setLevel(logging.WARNING)
    logger.addHandler(complaints)
    try:
        params = dict(matplotlib.rc_params_from_file(path, use_default_template=False))
    except UnicodeDecodeError:
        params = {}
    finally:
        logger.removeHandler(complaints)
    if complaints.buffer:
        first = complaints.buffer[0].getMessage().strip().splitlines()[0]
        reason = first.replace(f" in file {path!r}", "").replace(f" in file {path}", "")
        raise ValueError(f"{path} is not a style that matplotlib can use: {reason.rstrip('.')}.")
    return params
