"""The figures of detection show their tables: every method, every pair of datasets, every curve."""

import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import AxLine, Line2D

from anchorscope.detect.methods import LEARNT, METHOD_KINDS, METHOD_TITLES, METHODS
from anchorscope.draw.detection import CURVE_METHODS, FEWEST_DRAWN
from anchorscope.draw.facets import NO_DATA
from anchorscope.draw.functions import draw_figure
from anchorscope.draw.registry import DETECTION_KINDS
from anchorscope.draw.style import read_style
from anchorscope.draw.view import View
from detection_scores import BY_DEFAULT, make_detection
from read_figures import clashing, dashes, outside, over

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
    return {kind.name: draw_figure(kind.name, tables, view) for kind in DETECTION_KINDS}


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
    for points in panel.collections:
        if isinstance(points, PathCollection):
            faces, edges = np.broadcast_arrays(points.get_facecolor(), points.get_edgecolor())
            for place, face, edge in zip(points.get_offsets(), faces, edges, strict=True):
                if (to_hex(face) == to_hex(edge)) == filled:
                    found.setdefault(to_hex(edge), set()).add(tuple(map(float, place)))
    return found


def places(panel: Axes) -> dict[str, float]:
    """Where each name lies on the y axis."""
    return dict(zip((label.get_text() for label in panel.get_yticklabels()), panel.get_yticks(), strict=True))


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
    assert marks(panel, filled=True) == {read_style().colours[1]: points}
    bars = [bar for some in panel.collections if isinstance(some, LineCollection) for bar in some.get_segments()]
    ends = {(row["auc_low"], row["auc_high"], heights[METHOD_TITLES[row["method"]]]) for row in rows}
    assert {(bar[0][0], bar[1][0], bar[0][1]) for bar in bars} == ends
    lowest, highest = panel.get_xlim()
    assert all(lowest <= low and high <= highest for low, high, _ in ends)
    (probe,) = (line for line in panel.get_lines() if line.get_linestyle() == "--")
    assert set(probe.get_xdata()) == {row["auc"] for row in rows if row["method"] == "probe"}


def test_a_pair_that_was_not_probed_says_so_and_random_weights_are_marked(figures):
    for name in ("detection", "transfer"):
        assert [NO_DATA in texts(panel) for panel in figures[name].axes] == [False] * 5 + [True]
        rows = [over(panel) for panel in figures[name].axes[:: len(DATASETS)]]
        assert rows == ["Llama-3.2-1B-Instruct", "Llama-3.2-3B-Instruct (random weights)"]
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
    colours = dict(zip(DATASETS, read_style().colours, strict=False))
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
        assert marks(panel, filled=True) == {colours[tested]: same, to_hex("0.15"): others}
        bars = [some for some in panel.collections if isinstance(some, LineCollection)]
        segments = [segment for some in bars for segment in some.get_segments()]
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
    figure = draw_figure("transfer", tables | {"transfer": shared}, View({"small": "Small"}, DATASETS))
    said = "no mark: the datasets share too much to learn from one for the other"
    assert said in figure.get_suptitle().replace("\n", " ")
    first = read_style().colours[0]
    assert [first in marks(panel, filled=False) for panel in figure.axes] == [False, True, False]
    whole = draw_figure("transfer", tables, View({"small": "Small"}, DATASETS))
    assert "no mark" not in whole.get_suptitle()
    assert [first in marks(panel, filled=False) for panel in whole.axes] == [False, True, True]


def test_with_one_dataset_transfer_says_that_there_is_nothing_to_carry_over(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["popqa"])
    figure = draw_figure("transfer", tables, View({"small": "Small"}, {"popqa": "PopQA"}))
    assert "one dataset: there is nothing to carry over" in figure.get_suptitle()
    (panel,) = figure.axes
    home = tables["detection"].filter(method="answer_length")["auc"].item()
    assert (home, places(panel)["length of the answer"]) in marks(panel, filled=True)[read_style().colours[0]]
    assert marks(panel, filled=False) == {}
    assert "trained on all others" not in {text.get_text() for text in figure.legends[0].get_texts()}


def test_where_nothing_was_probed_every_panel_says_so(tables):
    none = {name: table.clear() for name, table in tables.items()}
    for kind in DETECTION_KINDS:
        figure = draw_figure(kind.name, none, View({"small": "Small"}, DATASETS, style=read_style(column=True)))
        assert all(NO_DATA in texts(panel) for panel in figure.axes), kind.name
        assert min(panel.get_position().height for panel in figure.axes) * figure.get_figheight() > 0.5, kind.name


def test_what_is_said_of_transfer_is_of_the_models_and_datasets_shown(tables):
    other = tables["transfer"].with_columns(model=pl.lit("other"), auc=pl.lit(None, pl.Float64))
    both = tables | {"transfer": pl.concat([tables["transfer"], other.select(tables["transfer"].columns)])}
    assert "no mark" not in draw_figure("transfer", both, View({"small": "Small"}, DATASETS)).get_suptitle()
    alone = draw_figure("transfer", tables, View({"small": "Small"}, {"popqa": "PopQA"}))
    assert "one dataset" in alone.get_suptitle()


def test_a_curve_of_one_bin_is_a_point(tables):
    lone = tables["reliability"].with_columns(n=pl.when(pl.col("bin") == 5).then(50).otherwise(0))
    figure = draw_figure("reliability", tables | {"reliability": lone}, View({"small": "Small"}, DATASETS))
    points = [line for line in figure.axes[0].get_lines() if np.size(line.get_xdata()) == 1]
    assert points
    assert all(line.get_marker() == "o" for line in points)


def test_nine_datasets_have_marks_over_again(tables):
    names = {f"d{number}": f"Set {number}" for number in range(9)}
    table = pl.concat(
        tables["transfer"].filter(model="small", dataset="popqa").with_columns(dataset=pl.lit(d)) for d in names
    )
    table = table.with_columns(trained_on=pl.when(trained_on="popqa").then(pl.lit("d8")).otherwise(pl.lit("others")))
    nine = tables | {"transfer": table}
    assert len(draw_figure("transfer", nine, View({"small": "Small"}, names)).axes) == 9


def test_a_style_without_markers_still_has_points(tables):
    figure = draw_figure("transfer", tables, View({"small": "Small"}, DATASETS, style=read_style("ggplot")))
    assert marks(figure.axes[0], filled=True)


def test_curves_are_those_of_their_tables(figures, tables):
    panels = np.reshape(figures["reliability"].axes, (-1, 2))
    assert [panel.get_title().strip() for panel in panels[0]] == ["reliability", "risk"]
    assert [over(panel).replace("\n", " ") for panel in panels[:3, 0]] == [
        f"Llama-3.2-1B-Instruct, {title}" for title in DATASETS.values()
    ]
    assert [panel.get_xlabel() for panel in panels[-1]] == ["P(hallucinated), %", "answers kept, %"]
    keys = {entry.get_label(): entry for entry in figures["reliability"].legends[0].legend_handles}
    lines, risks = (drawn(panel) for panel in panels[0])
    own = {"model": "small", "dataset": "popqa"}
    for method in CURVE_METHODS:
        key = keys[METHOD_TITLES[method]]
        look = to_hex(key.get_color()), dashes(key)
        bins = tables["reliability"].filter(pl.col("n") >= FEWEST_DRAWN, method=method, **own)
        np.testing.assert_allclose(lines[look].get_xdata(), 100 * bins["p"].to_numpy())
        np.testing.assert_allclose(lines[look].get_ydata(), 100 * bins["hallucinated_share"].to_numpy())
        curve = tables["coverage"].filter(pl.col("kept") >= FEWEST_DRAWN, method=method, **own)
        np.testing.assert_allclose(risks[look].get_xdata(), 100 * curve["coverage"].to_numpy())
        np.testing.assert_allclose(risks[look].get_ydata(), 100 * curve["risk"].to_numpy())
    low, high = panels[0, 1].get_ylim()
    assert low <= min(map(min, (line.get_ydata() for line in risks.values())))
    assert max(map(max, (line.get_ydata() for line in risks.values()))) <= high


def drawn(panel: Axes) -> dict[tuple[str, str], Line2D]:
    """The curves of a panel by colour and dashes."""
    return {
        (to_hex(line.get_color()), dashes(line)): line for line in panel.get_lines() if not isinstance(line, AxLine)
    }


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
        figure = draw_figure(kind.name, some, View(named, DATASETS, style=style))
        assert figure.get_figwidth() == style.width, kind.name
        assert outside(figure) == clashing(figure) == [], kind.name
