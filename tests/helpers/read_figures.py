"""What can be read off a drawn figure, and its files."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from anchorscope.draw.figures import DRAW
from anchorscope.draw.panels import Tables, View, read_style, save


def write_figure(figure: Path, tables: Tables, models: Mapping[str, str], datasets: Mapping[str, str]) -> Path:
    """The files of a figure that the report shows, at both widths; its kind is the last part of its path."""
    for column, width in ((False, ""), (True, "_column")):
        view = View(models, datasets, style=read_style(column=column))
        drawn = DRAW[figure.name](tables, view)
        for end in (".svg", ".png"):
            save(drawn, figure.with_name(f"{figure.name}{width}{end}"), view.style)
    return figure


def outside(figure: Figure) -> list[str]:
    """Texts that do not lie wholly on the sheet, or that lie on another one."""
    renderer = figure._get_renderer()
    sheet = figure.get_window_extent(renderer).padded(1)
    titles = [panel.title for panel in figure.axes if panel.get_title()]
    beside = [figure._supylabel] if figure._supylabel else []
    above = [panel._left_title for panel in figure.axes]
    labels = [*beside, *above, *(panel.yaxis.label for panel in figure.axes)]
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
