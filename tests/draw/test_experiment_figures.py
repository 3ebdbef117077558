"""The experiments' figures show their tables: both groupings side by side, each condition, each interval."""

from collections.abc import Iterable
from itertools import product

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from anchorscope.draw.experiments import APART
from anchorscope.draw.functions import draw_figure
from anchorscope.draw.registry import FIGURE_KINDS
from anchorscope.draw.style import PALETTE, read_style
from anchorscope.draw.view import View
from anchorscope.experiments import READS
from anchorscope.experiments.groups import RULES
from experiment_tables import REFERENCE, level, make_experiments
from read_figures import clashing, curves, legend, outside, over

LAYERS = 4
DATASETS = {"popqa": "PopQA", "nq": "NQ"}
COLOURS = PALETTE[: len(DATASETS)]


def make_layers(models: Iterable[str]) -> pl.DataFrame:
    """The reference layer of every model and dataset."""
    return pl.DataFrame(
        {"model": model, "dataset": dataset, "component": "resid", "position": "answer_last"}
        | {"intervention": "clean", "layer": layer, "is_reference": layer == REFERENCE}
        for model, dataset, layer in product(models, DATASETS, range(LAYERS))
    )


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    return {**make_experiments({"small": LAYERS}, list(DATASETS)), "layers": make_layers(["small"])}


@pytest.fixture(scope="module")
def figures(tables) -> dict[str, Figure]:
    """As wide as a column, where there is least room."""
    view = View({"small": "Llama-3.2-1B-Instruct"}, DATASETS, style=read_style(column=True))
    return {name: draw_figure(name, tables, view) for name in READS}


def marks(panel: Axes) -> dict[tuple[float, float], tuple[str, bool]]:
    """The colour of each point, and whether it is filled, by its place."""
    found = {}
    for points in panel.collections:
        if isinstance(points, PathCollection):
            faces, edges = np.broadcast_arrays(points.get_facecolor(), points.get_edgecolor())
            for place, face, edge in zip(points.get_offsets(), faces, edges, strict=True):
                found[tuple(map(float, place))] = to_hex(edge), to_hex(face) == to_hex(edge)
    return found


def texts(panel: Axes) -> list[str]:
    """What is written in a panel, and not over it."""
    return [text.get_text() for text in panel.texts if not isinstance(text, Annotation)]


def intervals(panel: Axes) -> set[tuple[float, float, float]]:
    """Where each one begins, ends and lies."""
    bars = [bar for some in panel.collections if isinstance(some, LineCollection) for bar in some.get_segments()]
    return {(float(bar[0][0]), float(bar[1][0]), float(bar[0][1])) for bar in bars}


def rows(figure: Figure) -> list[str]:
    """What stands over each row of panels."""
    return [over(panel) for panel in figure.axes[:: len(RULES)]]


def test_every_experiment_has_a_figure_of_its_name():
    assert [kind.name for kind in FIGURE_KINDS if kind.experiment] == list(READS)


@pytest.mark.parametrize(
    ("name", "measure", "conditions", "titles"),
    [
        ("patching", "flips", ["patch_question", "patch_random"], ["exact words", "other words"]),
        ("answer_only", "delta_p", ["answer_only", "answer_after_other"], ["answer alone", "after another question"]),
    ],
)
def test_every_dataset_has_both_groups_under_the_condition_and_below_under_its_control(
    figures, name, measure, conditions, titles
):
    figure = figures[name]
    assert [panel.get_title().strip() for panel in figure.axes[: len(RULES)]] == list(RULES)
    assert rows(figure) == [f"Llama-3.2-1B-Instruct, {title}" for title in titles]
    for panel, (condition, _) in zip(figure.axes, product(conditions, RULES), strict=True):
        for colour, (anchor, line) in product(COLOURS, (("question", "-"), ("answer", "--"))):
            first = level(measure, condition, anchor)
            assert curves(panel)[colour, line] == pytest.approx({layer: first - layer for layer in range(LAYERS)})


def test_awareness_has_the_auc_of_states_its_control_and_what_states_tell_beyond_clean_logits(figures):
    figure = figures["awareness"]
    lines = (("auc", "states"), ("gain", "signed"), ("gain", "logit"))
    for panel, ((measure, reader), _) in zip(figure.axes, product(lines, RULES), strict=True):
        first = level(measure, reader, None)
        for colour in COLOURS:
            assert curves(panel)[colour, "-"] == pytest.approx({layer: first - layer for layer in range(LAYERS)})
        lowest, highest = panel.get_ylim()
        assert lowest < first - LAYERS + 1 - 3
        assert highest > first + 3
        (at,) = {line.get_ydata()[0] for line in panel.get_lines() if isinstance(line.get_xdata(), list)}
        assert at == (50 if measure == "auc" else 0)
    for colour in COLOURS:
        control = curves(figure.axes[0])[colour, ":"]
        assert control == pytest.approx({layer: 70.0 - layer for layer in range(LAYERS)})


def test_the_boundary_has_both_groups_of_every_dataset_at_the_reference_layer_with_their_intervals(figures):
    figure = figures["boundary"]
    right, gap = figure.axes[0], figure.axes[len(RULES)]
    for panel, (upper, lower) in ((right, (40.0, 10.0)), (gap, (30.0, 30.0))):
        expected = {
            (value - REFERENCE, offset - place): (COLOURS[place], filled)
            for place in range(len(DATASETS))
            for value, offset, filled in ((upper, APART, True), (lower, -APART, False))
        }
        assert marks(panel) == expected
        assert intervals(panel) == {(x - 3, x + 3, y) for x, y in expected}
        lowest, highest = panel.get_xlim()
        assert all(lowest < begin and end < highest for begin, end, _ in intervals(panel))
    assert [label.get_text() for label in right.get_yticklabels()] == list(DATASETS.values())
    assert right.get_yticks()[0] > right.get_yticks()[1], "the first dataset is on top"
    assert right.get_ylim()[0] < right.get_ylim()[1]
    assert legend(figure) == ["Q", "A", "Q − A", "Q − A at equal clean logit"]


def test_every_row_of_the_boundary_names_its_model_and_measure(figures):
    assert rows(figures["boundary"])[:2] == [
        "Llama-3.2-1B-Instruct, right answers, %",
        "Llama-3.2-1B-Instruct, right answers, Q − A, points",
    ]


def test_what_was_not_measured_has_no_panel_of_the_boundary(tables):
    view = View({"small": "Small"}, DATASETS)
    some = draw_figure("boundary", tables | {"boundary": tables["boundary"].filter(measure="accuracy")}, view)
    assert rows(some) == ["Small, right answers, %", "Small, right answers, Q − A, points"]


def test_the_boundary_says_why_a_dataset_has_no_marks(tables):
    missing = pl.col("dataset") == "nq"
    boundary = tables["boundary"].filter(~(missing & (pl.col("measure") == "popularity")))
    few = missing & (pl.col("measure") == "accuracy")
    boundary = boundary.with_columns(pl.when(~few).then(pl.col("value", "low", "high")))
    view = View({"small": "Small"}, DATASETS)
    figure = draw_figure("boundary", tables | {"boundary": boundary}, view)
    panels = zip(rows(figure), figure.axes[:: len(RULES)], strict=True)
    said = {row.removeprefix("Small, "): texts(panel) for row, panel in panels}
    assert said["right answers, %"] == ["too few"]
    assert said["log₁₀ popularity"] == ["no estimate"]
    assert said["log probability"] == []


def test_a_density_has_a_peak_where_the_sample_has_and_loses_nothing_below_zero(tables):
    """Half of the values lie near one, half near three: near a half and one and a half of their mean."""
    draw = np.random.default_rng(0)
    two_peaks = np.concatenate([np.full(200, 1.0), np.full(200, 3.0)]) + draw.normal(0, 0.1, 400)
    for sample, peaks in ((two_peaks, [0.5, 1.5]), (draw.exponential(size=4000), [])):
        table = tables["saliency"].with_columns(sample=pl.Series([sample] * len(tables["saliency"])))
        figure = draw_figure("saliency", tables | {"saliency": table}, View({"small": "Small"}, DATASETS))
        x, y = figure.axes[0].get_lines()[0].get_data()
        assert x.min() == 0
        assert 2 * np.trapezoid(y, x) == pytest.approx(1, abs=0.05), "half of it, since it is mirrored at zero"
        tops = x[1:-1][(y[1:-1] > y[:-2]) & (y[1:-1] > y[2:])]
        assert tops[tops < 3] == pytest.approx(peaks, abs=0.1), "beyond lies a value here and there"


def test_a_salmon_stands_beside_its_models_saliency(tables):
    salmon = tables["saliency"].with_columns(model=pl.lit("small+salmon"), weights=pl.lit("random"))
    with_salmon = tables | {"saliency": pl.concat([tables["saliency"], salmon])}
    view = View({"small": "Small"}, DATASETS)
    figures = [draw_figure("saliency", some, view) for some in (tables, with_salmon)]
    without, named = (set(legend(figure)) for figure in figures)
    assert named - without == {"exact question words, random weights"}


OTHER_SIZES = [(2, True), (4, True), (4, False)]


@pytest.mark.parametrize(
    ("models", "column"), [(1, True), *(pytest.param(*some, marks=pytest.mark.slow) for some in OTHER_SIZES)]
)
def test_no_text_is_cut_off_or_lies_on_another(models, column):
    named = {f"m{number}": f"Qwen2.5-Coder-{number}.5B-Instruct" for number in range(models)}
    some = make_experiments(dict.fromkeys(named, LAYERS), list(DATASETS))
    some["layers"] = make_layers(named)
    style = read_style(column=column)
    for name in READS:
        figure = draw_figure(name, some, View(named, DATASETS, style=style))
        assert figure.get_figwidth() == style.width, name
        assert outside(figure) == clashing(figure) == [], name
