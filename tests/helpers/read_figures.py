"""What can be read off a drawn figure, and its files."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from anchorscope.draw.facets import save
from anchorscope.draw.functions import draw_figure
from anchorscope.draw.style import DASH_DOTTED, DASHED, DOTTED, FAINT, read_style
from anchorscope.draw.view import Tables, View

DASHES = {DASHED: "--", DOTTED: ":", DASH_DOTTED: "-."}
Curve = dict[float, float]  # height by layer


def write_figure(figure: Path, tables: Tables, models: Mapping[str, str], datasets: Mapping[str, str]) -> Path:
    """Write the files of a figure that the report shows, at both widths; its kind is the last part of its path."""
    for column, width in ((False, ""), (True, "_column")):
        view = View(models, datasets, style=read_style(column=column))
        drawn = draw_figure(figure.name, tables, view)
        for end in (".svg", ".png"):
            save(drawn, figure.with_name(f"{figure.name}{width}{end}"), view.style)
    return figure


def dashes(line: Line2D) -> str:
    """Return the kind of dashes of a line in matplotlib's own words."""
    pattern = line._unscaled_dash_pattern[1]
    return "-" if pattern is None else DASHES.get(tuple(pattern), "other")


def curves(panel: Axes, faint: bool = False) -> dict[tuple[str, str], Curve]:
    """Return the firm or the faint curves of a panel by colour and dashes, each put together from its parts."""
    found: dict[tuple[str, str], Curve] = {}
    for line in panel.get_lines():
        is_level = line.get_xdata() == [0, 1] if isinstance(line.get_xdata(), list) else False
        if (line.get_alpha() == FAINT) == faint and not is_level:
            curve = found.setdefault((to_hex(line.get_color()), dashes(line)), {})
            curve.update(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True))
    return found


def legend(figure: Figure) -> list[str]:
    """Return the labels of a figure's legend, each in one line."""
    (found,) = figure.legends
    return [text.get_text().replace("\n", " ") for text in found.get_texts()]


def over(panel: Axes) -> str:
    """Return what stands over the left end of a panel."""
    return "".join(note.get_text() for note in panel.texts if isinstance(note, Annotation))


def outside(figure: Figure) -> list[str]:
    """Texts that do not lie wholly on the sheet, or that lie on another one."""
    renderer = figure._get_renderer()
    sheet = figure.get_window_extent(renderer).padded(1)
    titles = [panel.title for panel in figure.axes if panel.get_title()]
    above = [note for panel in figure.axes for note in panel.texts if isinstance(note, Annotation)]
    labels = [*above, *(panel.yaxis.label for panel in figure.axes)]
    texts = [figure._suptitle, *titles, *labels, *figure.legends[0].get_texts()]
    boxes = {text: text.get_window_extent(renderer) for text in texts if text.get_text()}
    off = [
        text.get_text() for text, box in boxes.items() if not (sheet.contains(*box.min) and sheet.contains(*box.max))
    ]
    over = [
        one.get_text()
        for one in titles
        for other in titles
        if one is not other and boxes[one].padded(-1).overlaps(boxes[other].padded(-1))
    ]
    return off + over


def clashing(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that lie on one another: names and numbers of axes, titles, notes in panels and the legend."""
    renderer = figure._get_renderer()
    shown = [panel for panel in figure.axes if panel.get_visible()]
    texts = [*figure.legends[0].get_texts(), *(text for panel in shown for text in (panel.title, *panel.texts))]
    for axis in (axis for panel in shown for axis in (panel.xaxis, panel.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        texts += [axis.label, *(tick.label1 for tick in ticks if tick.label1.get_visible())]
    boxes = []
    for text in texts:
        own, whole = text.get_text(), text.get_window_extent(renderer)
        text.set_text(own.strip())  # what keeps room for another text is not seen
        seen = text.get_window_extent(renderer)
        if text.get_text():
            boxes.append((own, Bbox.from_bounds(seen.x0, whole.y1 - seen.height, *seen.size).padded(-2)))
        text.set_text(own)
    return [
        (one, other)
        for number, (one, box) in enumerate(boxes)
        for other, earlier in boxes[:number]
        if box.overlaps(earlier)
    ]
