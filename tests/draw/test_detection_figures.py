"""The figures of detection show their tables: every method, every pair of datasets, every curve."""

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS
from anchorscope.draw.detection import CURVE_METHODS, FEWEST_DRAWN
from anchorscope.draw.figures import DRAW
from anchorscope.draw.kinds import DETECTION_KINDS
from anchorscope.draw.panels import View, read_style
from detection_scores import BY_DEFAULT, make_detection
from read_figures import clashing, outside

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


def marks(panel: Axes, filled: bool) -> dict[str, set[tuple[float, float]]]:
    """The places of all points, by their colour; filled ones or hollow ones."""
    found: dict[str, set[tuple[float, float]]] = {}
    for line in panel.get_lines():
        if line.get_linestyle() == "None" and (line.get_markerfacecolor() == line.get_color()) == filled:
            found.setdefault(str(line.get_color()), set()).update(zip(line.get_xdata(), line.get_ydata(), strict=True))
    return {colour: points for colour, points in found.items() if points}


def blocks(figure: Figure) -> list[str]:
    """Titles of models."""
    return [text for panel in figure.axes for text in texts(panel) if text != "not probed"]


def places(panel: Axes) -> dict[str, float]:
    """Where each name lies on the y axis."""
    labels = [label.get_text().replace("\n", " ") for label in panel.get_yticklabels()]
    return dict(zip(labels, panel.get_yticks(), strict=True))


def test_a_panel_has_every_method_in_order_below_its_kind(figures):
    panel = figures["detection"].axes[0]
    named = places(panel)
    expected = []
    for kind, title in METHOD_KINDS.items():
        own = [METHOD_TITLES[name] for name in BY_DEFAULT if METHODS[name].kind == kind]
        expected += [title, *own] if own else []
    assert sorted(named, key=named.__getitem__, reverse=True) == expected
    assert panel.get_ylim()[0] < min(named.values()) < max(named.values()) < panel.get_ylim()[1]


def test_a_method_has_its_auc_with_its_interval_and_the_probe_is_a_line(figures, tables):
    panel, heights = figures["detection"].axes[1], places(figures["detection"].axes[0])
    rows = tables["detection"].filter(model="small", dataset="hotpotqa").to_dicts()
    points = {(row["auc"], heights[METHOD_TITLES[row["method"]]]) for row in rows}
    assert marks(panel, filled=True) == {read_style().looks[1]["color"]: points}
    bars = [bar for some in panel.collections if isinstance(some, LineCollection) for bar in some.get_segments()]
    ends = {(row["auc_low"], row["auc_high"], heights[METHOD_TITLES[row["method"]]]) for row in rows}
    assert {(bar[0][0], bar[1][0], bar[0][1]) for bar in bars} == ends
    lowest, highest = panel.get_xlim()
    assert all(lowest <= low and high <= highest for low, high, _ in ends)
    (probe,) = (line for line in panel.get_lines() if line.get_label() == "the plain probe's AUC")
    assert set(probe.get_xdata()) == {row["auc"] for row in rows if row["method"] == "probe"}


def test_a_pair_that_was_not_probed_says_so_and_random_weights_are_marked(figures):
    for name in ("detection", "transfer"):
        assert ["not probed" in texts(panel) for panel in figures[name].axes] == [False] * 5 + [True]
        assert blocks(figures[name]) == ["Llama-3.2-1B-Instruct", "Llama-3.2-3B-Instruct (random weights)"]
    for figure in figures.values():
        said = figure.get_suptitle().replace("\n", " ")
        assert "NQ-mini: questions bundled with Anchorscope, not the published datasets." in said
        assert "Llama-3.2-3B-Instruct: random weights;" in said


def expected_marks(transfer: pl.DataFrame, heights: dict[str, float], **chosen: str) -> set[tuple[float, float]]:
    rows = transfer.drop_nulls("auc").filter(pl.col("method").is_in(LEARNT), **chosen)
    return {(row["auc"], heights[METHOD_TITLES[row["method"]]]) for row in rows.to_dicts()}


def test_transfer_has_every_dataset_that_a_method_learnt_from_and_all_others_together(figures, tables):
    heights = places(figures["transfer"].axes[0])
    learnt = {METHOD_TITLES[name] for name in BY_DEFAULT if METHODS[name].learns}
    assert learnt == set(heights) - set(METHOD_KINDS.values())
    colours = dict(zip(DATASETS, [look["color"] for look in read_style().looks], strict=False))
    for panel, tested in zip(figures["transfer"].axes, DATASETS, strict=False):
        own = {"model": "small", "dataset": tested}
        hollow = {
            colours[name]: expected_marks(tables["transfer"], heights, trained_on=name, **own) for name in DATASETS
        }
        same, others = (
            hollow.pop(colours[tested]),
            expected_marks(tables["transfer"], heights, trained_on="others", **own),
        )
        assert same
        assert others
        assert marks(panel, filled=False) == hollow
        assert marks(panel, filled=True) == {colours[tested]: same, "0.15": others}
        segments = [bar for some in panel.collections for bar in some.get_segments()]
        lost = {tuple(map(tuple, np.sort(bar, axis=0))) for bar in segments}
        assert lost == {
            tuple(sorted([(one, height), (other, height)]))
            for one, height in same
            for other, beside in others
            if height == beside
        }, "from the same dataset to all others"


def test_a_pair_of_datasets_that_share_too_much_has_no_mark_and_that_is_said(tables):
    pair = (pl.col("trained_on") == "popqa") & (pl.col("dataset") == "nq")
    shared = tables["transfer"].with_columns(auc=pl.when(~pair).then(pl.col("auc")))
    figure = DRAW["transfer"](tables | {"transfer": shared}, View({"small": "Small"}, DATASETS))
    said = "no mark: the datasets share too much to learn from one for the other"
    assert said in figure.get_suptitle().replace("\n", " ")
    first = read_style().looks[0]["color"]
    assert [first in marks(panel, filled=False) for panel in figure.axes] == [False, True, False]
    whole = DRAW["transfer"](tables, View({"small": "Small"}, DATASETS))
    assert "no mark" not in whole.get_suptitle()
    assert [first in marks(panel, filled=False) for panel in whole.axes] == [False, True, True]


def test_with_one_dataset_transfer_says_that_there_is_nothing_to_carry_over(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["popqa"])
    figure = DRAW["transfer"](tables, View({"small": "Small"}, {"popqa": "PopQA"}))
    assert "one dataset: there is nothing to carry over" in figure.get_suptitle()
    (panel,) = figure.axes
    home = tables["detection"].filter(method="answer_length")["auc"].item()
    assert (home, places(panel)["length of the answer"]) in marks(panel, filled=True)[read_style().looks[0]["color"]]
    assert marks(panel, filled=False) == {}
    assert "trained on all others" not in {text.get_text() for text in figure.legends[0].get_texts()}


def test_where_nothing_was_probed_every_panel_says_so(tables):
    none = {name: table.clear() for name, table in tables.items()}
    for kind in DETECTION_KINDS:
        figure = DRAW[kind.name](none, View({"small": "Small"}, DATASETS, style=read_style(column=True)))
        assert all("not probed" in texts(panel) for panel in figure.axes), kind.name
        assert min(panel.get_position().height for panel in figure.axes) * figure.get_figheight() > 0.5, kind.name


def test_a_style_without_markers_still_has_points(tables):
    figure = DRAW["transfer"](tables, View({"small": "Small"}, DATASETS, style=read_style("ggplot")))
    points = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert points
    assert all(line.get_marker() for line in points)


def test_curves_are_those_of_their_tables(figures, tables):
    lines = {line.get_label(): line for panel in figures["reliability"].axes[:1] for line in panel.get_lines()}
    risk = figures["reliability"].axes[len(DATASETS) * len(MODELS)]  # in a column it lies below
    assert risk.get_title().endswith("risk")
    own = {"model": "small", "dataset": "popqa"}
    for method in CURVE_METHODS:
        bins = tables["reliability"].filter(pl.col("n") >= FEWEST_DRAWN, method=method, **own)
        line = lines[METHOD_TITLES[method]]
        np.testing.assert_allclose(line.get_xdata(), 100 * bins["p"].to_numpy())
        np.testing.assert_allclose(line.get_ydata(), 100 * bins["hallucinated_share"].to_numpy())
        (line,) = (line for line in risk.get_lines() if line.get_label() == METHOD_TITLES[method])
        curve = tables["coverage"].filter(pl.col("kept") >= FEWEST_DRAWN, method=method, **own)
        np.testing.assert_allclose(line.get_xdata(), 100 * curve["coverage"].to_numpy())
        np.testing.assert_allclose(line.get_ydata(), 100 * curve["risk"].to_numpy())
        assert risk.get_ylim()[0] <= min(line.get_ydata()) <= max(line.get_ydata()) <= risk.get_ylim()[1]


OTHER_SIZES = [(2, True), (4, True), (4, False)]


@pytest.mark.parametrize(
    ("models", "column"), [(1, True), *(pytest.param(*some, marks=pytest.mark.slow) for some in OTHER_SIZES)]
)
def test_no_text_of_detection_is_cut_off_or_lies_on_another(tables, models, column):
    named = {f"m{number}": f"Qwen2.5-Coder-{number}.5B-Instruct" for number in range(models)}
    some = {
        name: pl.concat([table.filter(model="small").with_columns(model=pl.lit(model)) for model in named])
        for name, table in tables.items()
        if "model" in table.columns
    }
    style = read_style(column=column)
    for kind in DETECTION_KINDS:
        figure = DRAW[kind.name](some, View(named, DATASETS, style=style))
        assert figure.get_figwidth() == style.width, kind.name
        assert outside(figure) == clashing(figure) == [], kind.name
