"""The experiments' figures show their tables: both groupings side by side, each condition, each interval."""

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from anchorscope.draw.experiments import AWARENESS_TITLES, density
from anchorscope.draw.figures import DRAW
from anchorscope.draw.kinds import FIGURE_KINDS
from anchorscope.draw.panels import View, read_style
from anchorscope.experiments import READS
from anchorscope.experiments.groups import RULES
from experiment_tables import REFERENCE, level, make_experiments
from read_figures import outside

LAYERS = 4
DATASETS = {"popqa": "PopQA", "nq": "NQ"}


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    layers = pl.DataFrame(
        {"model": "small", "dataset": dataset, "component": "resid", "position": "answer_last"}
        | {"intervention": "clean", "layer": layer, "is_reference": layer == REFERENCE}
        for dataset in DATASETS
        for layer in range(LAYERS)
    )
    return {**make_experiments({"small": LAYERS}, list(DATASETS)), "layers": layers}


@pytest.fixture(scope="module")
def figures(tables) -> dict[str, Figure]:
    """As wide as a column, where there is least room."""
    view = View({"small": "Llama-3.2-1B-Instruct"}, DATASETS, style=read_style(column=True))
    return {name: DRAW[name](tables, view) for name in READS}


def drawn(figure: Figure, panel: int, label: str) -> np.ndarray:
    (line,) = (line for line in figure.axes[panel].get_lines() if line.get_label() == label)
    return np.asarray(line.get_ydata(), dtype=float)


def test_every_experiment_has_a_figure_of_its_name():
    assert [kind.name for kind in FIGURE_KINDS if kind.experiment] == list(READS)


@pytest.mark.parametrize(
    ("name", "measure", "conditions"),
    [
        ("patching", "flips", {"patch_question": "exact words replaced", "patch_random": "other words replaced"}),
        (
            "answer_only",
            "delta_p",
            {"answer_only": "the answer alone", "answer_after_other": "the answer after another question"},
        ),
    ],
)
def test_a_panel_has_both_groups_under_the_condition_and_its_control(figures, name, measure, conditions):
    figure = figures[name]
    assert len(figure.axes) == len(DATASETS) * len(RULES)
    for panel in range(len(figure.axes)):
        for condition, title in conditions.items():
            for anchor, letter in (("question", "Q"), ("answer", "A")):
                expected = level(measure, condition, anchor) - np.arange(LAYERS)
                np.testing.assert_allclose(drawn(figure, panel, f"{letter}, {title}"), expected)


def test_awareness_has_a_curve_for_every_reader(figures):
    for title in AWARENESS_TITLES.values():
        np.testing.assert_allclose(drawn(figures["awareness"], 0, title), 70.0 - np.arange(LAYERS))


def test_the_boundarys_bars_are_those_of_the_reference_layer(figures):
    bars = figures["boundary"].axes[0].patches
    heights = [bar.get_height() for bar in bars]
    assert heights == pytest.approx([40.0 - REFERENCE] * len(DATASETS) + [10.0 - REFERENCE] * len(DATASETS))
    labels = {panel.get_ylabel().replace("\n", " ") for panel in figures["boundary"].axes[:: len(RULES)]}
    assert {"right, %", "right, %, by popularity", '"I don\'t know", %', "log probability"} <= labels


def test_what_was_not_measured_has_no_row_of_bars(tables):
    asked = tables | {"boundary": tables["boundary"].filter(measure="accuracy").filter(pl.col("stratum") != "popular")}
    figure = DRAW["boundary"](asked, View({"small": "Small"}, DATASETS))
    assert len(figure.axes) == 3 * len(RULES), "accuracy, its gap, and by popularity"


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


def test_no_text_is_cut_off_in_a_column(figures):
    for name, figure in figures.items():
        assert outside(figure) == [], name
