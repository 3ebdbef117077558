"""The function that draws each kind of figure."""

from collections.abc import Callable

from matplotlib.figure import Figure

from anchorscope.draw import detection, diagnostics, experiments, main
from anchorscope.draw.facets import style_context
from anchorscope.draw.registry import KINDS
from anchorscope.draw.view import Tables, View

DRAWING_MODULES = (main, diagnostics, experiments, detection)
FUNCTIONS = {name: function for module in DRAWING_MODULES for name, function in vars(module).items()}
# By the name of the kind. A kind whose function is in none of these modules stops the import.
DRAW: dict[str, Callable[[Tables, View], Figure]] = {name: FUNCTIONS[f"draw_{name}"] for name in KINDS}


def draw_figure(name: str, tables: Tables, view: View) -> Figure:
    """Draw one kind of figure; it says by itself where weights are random and questions bundled."""
    with style_context(view.style):
        return DRAW[name](tables, view.with_warnings(tables[KINDS[name].table]))
