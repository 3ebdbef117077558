"""The figures of detection show their tables: every method, every pair of datasets, every curve."""

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from anchorscope.detect.methods import METHOD_KINDS, METHOD_TITLES, METHODS
from anchorscope.draw.detection import CURVE_METHODS, FEWEST_DRAWN
from anchorscope.draw.figures import DRAW
from anchorscope.draw.kinds import DETECTION_KINDS
from anchorscope.draw.panels import View, read_style
from detection_scores import BY_DEFAULT, make_detection
from read_figures import outside

MODELS = {"small": "Llama-3.2-1B-Instruct", "shape": "Llama-3.2-3B-Instruct"}
DATASETS = {"popqa": "PopQA-mini", "hotpotqa": "HotpotQA-mini", "nq": "NQ-mini"}
MISSING = ("shape", "nq")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, pl.DataFrame]:
    weights = {"small": "trained", "shape": "random"}
    return make_detection(tmp_path_factory.mktemp("scores"), weights, list(DATASETS), MISSING)[0]


@pytest.fixture(scope="module")
def figures(tables) -> dict[str, Figure]:
    """As wide as a column, where there is least room."""
    view = View(MODELS, DATASETS, style=read_style(column=True))
    return {kind.name: DRAW[kind.name](tables, view) for kind in DETECTION_KINDS}


def texts(panel) -> list[str]:
    return [text.get_text() for text in panel.texts]


def test_every_method_and_kind_has_a_title():
    assert all(METHOD_TITLES.values())
    assert all(METHOD_KINDS.values())
    assert len(set(METHOD_TITLES.values())) == len(METHODS)
    assert list(dict.fromkeys(method.kind for method in METHODS.values())) == list(METHOD_KINDS)


def test_a_panel_has_every_method_in_order_with_its_interval_and_the_probe_as_a_line(figures, tables):
    panel = figures["detection"].axes[1]
    rows = tables["detection"].filter(model="small", dataset="hotpotqa")
    names = [label.get_text() for label in figures["detection"].axes[0].get_yticklabels()]
    assert names == [METHOD_TITLES[name] for name in BY_DEFAULT]
    heights = dict(zip(BY_DEFAULT, range(len(BY_DEFAULT), 0, -1), strict=True))
    assert panel.get_ylim()[0] < panel.get_ylim()[1], "the first method is on top"
    points = {}
    for line in panel.get_lines():
        if line.get_label() in METHOD_KINDS.values():
            points |= dict(zip(line.get_ydata(), line.get_xdata(), strict=True))
    assert points == {heights[row["method"]]: row["auc"] for row in rows.to_dicts()}
    bars = [bar for some in panel.collections if isinstance(some, LineCollection) for bar in some.get_segments()]
    drawn = {(round(bar[0][1]), *bar[:, 0]) for bar in bars if bar[0][1] == round(bar[0][1])}
    assert drawn == {(heights[row["method"]], row["auc_low"], row["auc_high"]) for row in rows.to_dicts()}
    (probe,) = (line for line in panel.get_lines() if line.get_label() == "the plain probe's AUC")
    assert set(probe.get_xdata()) == {rows.filter(method="probe")["auc"].item()}


def test_a_pair_that_was_not_probed_says_so_and_random_weights_are_marked(figures):
    detection = figures["detection"]
    assert ["not probed" in texts(panel) for panel in detection.axes] == [False] * 5 + [True]
    assert detection.axes[3].get_ylabel().replace("\n", " ") == "Llama-3.2-3B-Instruct (random weights)"
    for figure in figures.values():
        said = figure.get_suptitle().replace("\n", " ")
        assert "NQ-mini: questions bundled with Anchorscope, not the published datasets." in said
        assert "Llama-3.2-3B-Instruct: random weights;" in said


def test_a_map_has_every_pair_of_datasets_and_all_others_together(figures, tables):
    shown = [panel for panel in figures["transfer"].axes if panel.get_visible()]
    learnt = [name for name in BY_DEFAULT if METHODS[name].kind != "output"]
    assert [panel.get_title().replace("\n", " ") for panel in shown] == 2 * [METHOD_TITLES[name] for name in learnt]
    rows = tables["transfer"].filter(model="small", method="probe")
    known = {(teacher, tested): auc for teacher, tested, auc in rows.select("trained_on", "dataset", "auc").iter_rows()}
    panel = shown[learnt.index("probe")]
    values = [[known[one, other] for other in DATASETS] for one in (*DATASETS, "others")]
    np.testing.assert_allclose(panel.images[0].get_array(), values)
    assert texts(panel) == [f"{100 * value:.0f}" for line in values for value in line]
    assert [label.get_text() for label in shown[0].get_yticklabels()] == [*DATASETS.values(), "all others"]
    unknown = shown[len(learnt)].images[0].get_array()  # of the model with a pair that was not probed
    assert np.isnan(np.ma.filled(unknown, np.nan)[2]).all(), "nothing was trained on it"
    assert np.isnan(np.ma.filled(unknown, np.nan)[:, 2]).all(), "nothing was tested on it"


def test_a_pair_of_datasets_that_share_too_much_is_left_blank_and_that_is_said(tables):
    pair = (pl.col("trained_on") == "popqa") & (pl.col("dataset") == "nq")
    shared = tables["transfer"].with_columns(auc=pl.when(~pair).then(pl.col("auc")))
    figure = DRAW["transfer"](tables | {"transfer": shared}, View({"small": "Small"}, DATASETS))
    said = "blank: the datasets share too much to learn from one for the other"
    assert said in figure.get_suptitle().replace("\n", " ")
    values = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    assert np.argwhere(np.isnan(values)).tolist() == [[0, 2]]
    whole = DRAW["transfer"](tables, View({"small": "Small"}, DATASETS))
    assert "blank" not in whole.get_suptitle()


def test_with_one_dataset_the_map_says_that_there_is_nothing_to_carry_over(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["popqa"])
    figure = DRAW["transfer"](tables, View({"small": "Small"}, {"popqa": "PopQA"}))
    assert "one dataset: there is nothing to carry over" in figure.get_suptitle()
    home = tables["detection"].filter(method="answer_length")["auc"].item()
    assert texts(figure.axes[0]) == [f"{100 * home:.0f}"]


def test_curves_are_those_of_their_tables(figures, tables):
    reliability, coverage = figures["reliability"].axes[:2]
    own = {"model": "small", "dataset": "popqa"}
    for method, line in zip(CURVE_METHODS, reliability.get_lines(), strict=False):
        bins = tables["reliability"].filter(pl.col("n") >= FEWEST_DRAWN, method=method, **own)
        np.testing.assert_allclose(line.get_xdata(), 100 * bins["p"].to_numpy())
        np.testing.assert_allclose(line.get_ydata(), 100 * bins["hallucinated_share"].to_numpy())
    for method in CURVE_METHODS:
        (line,) = (line for line in coverage.get_lines() if line.get_label() == METHOD_TITLES[method])
        curve = tables["coverage"].filter(method=method, **own)
        np.testing.assert_allclose(line.get_xdata(), 100 * curve["coverage"].to_numpy())
        np.testing.assert_allclose(line.get_ydata(), 100 * curve["risk"].to_numpy())


@pytest.mark.parametrize("name", ["detection", "reliability"])
def test_no_text_of_detection_is_cut_off_in_a_column(figures, name):
    assert outside(figures[name]) == []


def test_no_title_of_a_map_lies_on_another_and_no_label_on_a_map(figures):
    figure = figures["transfer"]
    renderer = figure._get_renderer()
    shown = [panel for panel in figure.axes if panel.get_visible()]
    titles = [panel.title.get_window_extent(renderer) for panel in shown]
    names = [label for panel in shown for label in panel.get_xticklabels() if label.get_visible()]
    labels = [label.get_window_extent(renderer) for label in names if label.get_text()]
    assert len(labels) == 3 * len(DATASETS), "below the lowest map of every column"
    sheet = figure.get_window_extent(renderer).padded(1)
    for number, box in enumerate(titles):
        assert sheet.contains(*box.min)
        assert not any(box.padded(-1).overlaps(other.padded(-1)) for other in titles[:number])
        assert not any(box.overlaps(label) for label in labels)
    for label in labels:
        assert not any(label.padded(-1).overlaps(panel.bbox) for panel in shown)
