"""The experiments' figures show their tables: both groupings side by side, each condition, each interval."""

from collections.abc import Iterable
from itertools import product

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from anchorscope.draw.experiments import APART, density
from anchorscope.draw.figures import DRAW
from anchorscope.draw.kinds import FIGURE_KINDS
from anchorscope.draw.panels import View, read_style
from anchorscope.experiments import READS
from anchorscope.experiments.groups import RULES
from experiment_tables import REFERENCE, level, make_experiments
from read_figures import clashing, outside

LAYERS = 4
DATASETS = {"popqa": "PopQA", "nq": "NQ"}


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
    return {name: DRAW[name](tables, view) for name in READS}


def drawn(figure: Figure, panel: int, label: str) -> np.ndarray:
    (line,) = (line for line in figure.axes[panel].get_lines() if line.get_label() == label)
    return np.asarray(line.get_ydata(), dtype=float)


def marks(panel: Axes) -> dict[tuple[float, float], tuple[str, bool]]:
    """The colour of each point, and whether it is filled, by its place."""
    return {
        (float(x), float(y)): (str(line.get_color()), line.get_markerfacecolor() == line.get_color())
        for line in panel.get_lines()
        if line.get_linestyle() == "None"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }


def intervals(panel: Axes) -> set[tuple[float, float, float]]:
    """Where each one begins, ends and lies."""
    bars = [bar for some in panel.collections if isinstance(some, LineCollection) for bar in some.get_segments()]
    return {(float(bar[0][0]), float(bar[1][0]), float(bar[0][1])) for bar in bars}


def titles(figure: Figure) -> list[str]:
    """Those over panels, in one line each."""
    return [panel.get_title().replace("\n", " ") for panel in figure.axes if panel.get_title().strip()]


def test_every_experiment_has_a_figure_of_its_name():
    assert [kind.name for kind in FIGURE_KINDS if kind.experiment] == list(READS)


@pytest.mark.parametrize(
    ("name", "measure", "conditions"),
    [
        ("patching", "flips", ["patch_question", "patch_random"]),
        ("answer_only", "delta_p", ["answer_only", "answer_after_other"]),
    ],
)
def test_every_dataset_has_both_groups_under_the_condition_and_below_under_its_control(
    figures, name, measure, conditions
):
    figure = figures[name]
    assert titles(figure) == [f"Llama-3.2-1B-Instruct {rule}" for rule in RULES]
    assert len(figure.axes) == len(conditions) * len(RULES)
    for panel, (condition, _) in enumerate(product(conditions, RULES)):
        for dataset, (anchor, letter) in product(DATASETS.values(), (("question", "Q"), ("answer", "A"))):
            expected = level(measure, condition, anchor) - np.arange(LAYERS)
            np.testing.assert_allclose(drawn(figure, panel, f"{letter} {dataset}"), expected)


def test_groups_are_told_apart_by_line_and_datasets_by_colour(figures):
    curves = {line.get_label(): line for line in figures["patching"].axes[0].get_lines()}
    assert {name: curves[name].get_linestyle() for name in ("Q PopQA", "A PopQA", "Q NQ", "A NQ")} == {
        **{"Q PopQA": "-", "A PopQA": "--"},
        **{"Q NQ": "-", "A NQ": "--"},
    }
    assert curves["Q PopQA"].get_color() == curves["A PopQA"].get_color() != curves["Q NQ"].get_color()


def test_awareness_has_the_auc_of_states_its_control_and_what_states_tell_beyond_clean_logits(figures):
    figure = figures["awareness"]
    lines = (("auc", "states"), ("gain", "signed"), ("gain", "logit"))
    for panel, ((measure, reader), _) in enumerate(product(lines, RULES)):
        first = level(measure, reader, None)
        for dataset in DATASETS.values():
            np.testing.assert_allclose(drawn(figure, panel, dataset), first - np.arange(LAYERS))
        lowest, highest = figure.axes[panel].get_ylim()
        assert lowest < first - LAYERS + 1 - 3
        assert highest > first + 3
        (at,) = {line.get_ydata()[0] for line in figure.axes[panel].get_lines() if len(line.get_xdata()) == 2}
        assert at == (50 if measure == "auc" else 0)
    dotted = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == ":" and len(line.get_xdata())]
    for line in dotted:
        np.testing.assert_allclose(line.get_ydata(), 70.0 - np.arange(LAYERS))
    assert len(dotted) == len(DATASETS), "the control"


def test_the_boundary_has_both_groups_of_every_dataset_at_the_reference_layer_with_their_intervals(figures):
    right, gap = figures["boundary"].axes[:2]
    looks = [look["color"] for look in read_style().looks]
    for panel, (upper, lower) in ((right, (40.0, 10.0)), (gap, (30.0, 30.0))):
        expected = {
            (value - REFERENCE, place + offset): (looks[len(DATASETS) - place], filled)
            for place in range(1, len(DATASETS) + 1)
            for value, offset, filled in ((upper, APART, True), (lower, -APART, False))
        }
        assert marks(panel) == expected
        assert intervals(panel) == {(x - 3, x + 3, y) for x, y in expected}
        lowest, highest = panel.get_xlim()
        assert all(lowest < begin and end < highest for begin, end, _ in intervals(panel))
    assert [label.get_text() for label in right.get_yticklabels()] == list(DATASETS.values())
    assert right.get_ylim()[0] < right.get_ylim()[1], "the first dataset is on top"
    entries = {text.get_text() for text in figures["boundary"].legends[0].get_texts()}
    assert entries >= {"Q", "A", "Q − A", "Q − A at equal clean logit"}


def test_every_block_of_the_boundary_names_its_model_and_rule(figures):
    named = [text.get_text() for panel in figures["boundary"].axes for text in panel.texts]
    assert named == [f"Llama-3.2-1B-Instruct, {rule}" for rule in RULES]


def test_what_was_not_measured_has_no_panel_of_the_boundary(tables):
    view = View({"small": "Small"}, DATASETS)
    some = DRAW["boundary"](tables | {"boundary": tables["boundary"].filter(measure="accuracy")}, view)
    labels = ["right answers, %", "right answers,\nQ − A, points"]
    assert [panel.get_xlabel() for panel in some.axes] == ["", "", *labels], "the lowest row names them"
    assert (
        len({panel.get_xlim() for panel in some.axes[::2]}) == len({panel.get_xlim() for panel in some.axes[1::2]}) == 1
    )


def test_the_boundary_says_why_a_dataset_has_no_marks(tables):
    missing = pl.col("dataset") == "nq"
    boundary = tables["boundary"].filter(~(missing & (pl.col("measure") == "popularity")))
    few = missing & (pl.col("measure") == "accuracy")
    boundary = boundary.with_columns(pl.when(~few).then(pl.col("value", "low", "high")))
    figure = DRAW["boundary"](tables | {"boundary": boundary}, View({"small": "Small"}, DATASETS | {"own": "Own"}))
    said = {panel.get_xlabel(): [text.get_text() for text in panel.texts] for panel in figure.axes[-6:]}
    assert said["right answers, %"] == ["too few", "not probed", "Small, honest"]
    assert said["log₁₀ popularity"] == ["not known", "not probed"]
    assert said["log probability"] == ["not probed"]


def test_a_density_is_one_in_all_and_has_a_peak_where_the_sample_has():
    sample = np.concatenate([np.full(50, 1.0), np.full(50, 3.0)]) + np.random.default_rng(0).normal(0, 0.1, 100)
    reach, heights = density(sample)
    assert np.trapezoid(heights, reach) == pytest.approx(1, abs=0.05)
    peaks = reach[1:-1][(heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:])]
    assert peaks == pytest.approx([0.5, 1.5], abs=0.1), "relative to the mean, which is two"


def test_a_salmon_stands_beside_its_models_saliency(tables):
    salmon = tables["saliency"].with_columns(model=pl.lit("small+salmon"), weights=pl.lit("random"))
    with_salmon = tables | {"saliency": pl.concat([tables["saliency"], salmon])}
    view = View({"small": "Small"}, DATASETS)
    figures = [DRAW["saliency"](some, view) for some in (tables, with_salmon)]
    without, named = ({text.get_text() for text in figure.legends[0].get_texts()} for figure in figures)
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
        figure = DRAW[name](some, View(named, DATASETS, style=style))
        assert figure.get_figwidth() == style.width, name
        assert outside(figure) == clashing(figure) == [], name
