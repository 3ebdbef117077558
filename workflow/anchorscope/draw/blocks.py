"""What figures with many small panels share: where blocks of them stand, their titles, their height and their marks."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec

from anchorscope.draw.panels import LAYER, NARROWEST, Draw, Strip, View, grid, name_panel


def draw_blocks(
    view: View,
    table: pl.DataFrame,
    sides: Sequence[Strip],
    lines: Sequence[Strip],
    draw: Draw,
    *,
    below: str = LAYER,
    **options: Any,
) -> Figure:
    """A figure with a block of panels for each side of each model, which its title names, and a row for each line.

    Where the blocks do not all fit side by side, the sides stand below one another, or else the models do. Each block
    has its own x axis, labelled `below` it; a side may have a label of its own.
    """
    models = view.by_model(table)
    titles = view.titles(table)
    named: list[Strip] = [("", {**shown, "side": side}) for side, shown in sides]
    blocks: list[Strip] = [("", {})]
    columns: list[Strip] = [("", {**model, **shown}) for _, model in models for _, shown in named]
    room = int(view.style.width / NARROWEST)
    if len(columns) > room:
        blocks, columns = (named, models) if len(models) <= room else (models, named)

    def draw_named(panel: Axes, cell: dict[str, Any]) -> None:
        line, side, label = cell.pop("line"), cell.pop("side"), cell.pop("below", below)
        if line == 0:
            name_panel(panel, titles[cell["model"]], 1.15 * len(columns))  # every panel may have numbers of its own
            panel.set_title(f"{panel.get_title()}\n{side}")
        lowest = line == len(lines) - 1
        panel.tick_params(labelbottom=lowest)
        panel.set_xlabel(label if lowest else "")
        draw(panel, cell)

    return grid(
        view,
        table,
        [(title, {**block, **line, "line": at}) for _, block in blocks for at, (title, line) in enumerate(lines)],
        draw_named,
        columns=[("", shown) for _, shown in columns],
        below=below,
        sharex="row" if blocks is models else "col",  # the models' layers differ
        **options,
    )


def draw_as_high(view: View, height: float, draw: Callable[[float], Figure]) -> Figure:
    """A figure whose panels are so many times as high as the style says, whatever titles and legend take.

    `draw` gets the height of a row of panels with all that belongs to it.
    """
    figure = draw(height)
    panel = figure.axes[0]
    missing = height - panel.get_position().height * figure.get_figheight() / view.style.height
    rows = cast(GridSpec, panel.get_gridspec()).nrows  # every panel here is in a grid
    return draw(figure.get_figheight() / view.style.height / rows + missing)


def name_block(panels: Sequence[Axes], title: str) -> None:
    """A title from the left side of the first panel on, above the titles of all of them."""
    first, lines = panels[0], max(len(panel.get_title().splitlines()) for panel in panels)
    own = first.get_title().splitlines()
    first.set_title("\n".join([" "] * (lines + 1 - len(own)) + own))  # keeps the room
    size = float(first.title.get_fontsize())  # in points
    rise = matplotlib.rcParams["axes.titlepad"] + 1.2 * size * lines
    above: dict[str, Any] = {"textcoords": "offset points", "size": size, "in_layout": False}
    first.annotate(title, (0, 1), (0, rise), "axes fraction", **above)


def mark(colour: str, shape: str, *, filled: bool) -> dict[str, Any]:
    """The look of a point, hollow or not; filled ones lie above hollow ones."""
    face, above = (colour, 3) if filled else ("white", 2)
    size = {"markersize": 2.8, "markeredgewidth": 0.7}
    return {"color": colour, "marker": shape or "o", "linestyle": "", "markerfacecolor": face, "zorder": above, **size}
