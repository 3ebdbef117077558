"""The figures hold the published series in the published style, read back from the figures and their SVG."""

import re
import resource
import subprocess
import sys
from dataclasses import replace
from html import unescape

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import AxLine
from matplotlib.markers import MarkerStyle

from anchorscope.draw.draw_figures import Source, draw_figures
from anchorscope.draw.facets import NO_DATA, save
from anchorscope.draw.functions import DRAW, draw_figure
from anchorscope.draw.main import plot_family
from anchorscope.draw.registry import DETECTION_KINDS, FIGURE_KINDS, kinds_drawn
from anchorscope.draw.style import BUNDLED_STYLE, MARKERS, PALETTE, read_style
from anchorscope.draw.titles import TEXT_ORDER
from anchorscope.draw.view import PUBLISHED_PLACE, View
from anchorscope.extract.axes import COMPONENTS, POSITIONS
from anchorscope.files.frames import write_frame
from anchorscope.summarise.verdict_on_kinds import ALL_EXAMPLES
from anchorscope.summarise.wording import coarse_roundings, mark_random, notes, plain_paths, unprobed
from eyes import EYES, light, nearest
from faults import FULL, resize
from read_figures import curves, dashes, legend, outside, over
from small_things import ROOT
from synthetic_run import overall_gains

DATASETS = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"}
MODELS = {"small": "Small-1B", "large": "Large-3B"}
LAYERS = {"small": 6, "large": 9}
SERIES = [
    ("Q-Anchored (PopQA)", "tab:blue", "-"),
    ("A-Anchored (PopQA)", "tab:orange", "--"),
    ("Q-Anchored (TriviaQA)", "tab:green", "-"),
    ("A-Anchored (TriviaQA)", "tab:red", "--"),
    ("Q-Anchored (HotpotQA)", "tab:purple", "-"),
    ("A-Anchored (HotpotQA)", "tab:brown", "--"),
    ("Q-Anchored (NQ)", "tab:pink", "-"),
    ("A-Anchored (NQ)", "tab:gray", "--"),
]
BLUE, GREEN = to_hex("tab:blue"), to_hex("tab:green")
COLOURS = dict(zip(DATASETS.values(), PALETTE, strict=False))
ANCHOR_LINES = {"question": "-", "answer": "--"}
PAIRS = [(dataset, anchor) for dataset in DATASETS for anchor in ("question", "answer")]
SHIFTS = {("flip", "measured"): 0.0, ("honest", "measured"): 10.0}
SHIFTS |= {("honest", "recentred"): 12.0, ("honest", "residual"): 14.0}
HONEST = SHIFTS["honest", "measured"]
FORMS_ASKED = ["who", "when", "who", "how_many", "choice", "choice", "yes_no", "which_what", "other", None]
IN_EVERY_RUN = [kind.name for kind in FIGURE_KINDS if not kind.experiment]


def value(model: str, dataset: str, anchor: str, layer: int) -> float:
    depth = -30.0 if anchor == "question" else -3.0
    return depth - 5 * list(DATASETS).index(dataset) - layer - 10 * (model == "large")


def auc(dataset: str, intervention: str, layer: int) -> float:
    return 0.6 + 0.02 * layer + 0.01 * list(DATASETS).index(dataset) - 0.1 * (intervention == "exact_question")


def summary_rows():
    for model, layers in LAYERS.items():
        for component in COMPONENTS:
            for position in TEXT_ORDER:
                away = 3.0 * COMPONENTS.index(component) + TEXT_ORDER.index(position) - 1  # none at the headline
                for intervention, factor in (("exact_question", 1.0), ("random_question", 0.1)):
                    for dataset, anchor in [*PAIRS, *((dataset, "gap") for dataset in DATASETS)]:
                        for layer in range(layers):
                            for (rule, logits), shift in SHIFTS.items():
                                mean = factor * (value(model, dataset, anchor, layer) + shift + away)
                                null = intervention == "exact_question" and anchor != "gap"
                                yield {
                                    "model": model,
                                    "weights": "trained",
                                    "dataset": dataset,
                                    "source": "hub",
                                    "component": component,
                                    "position": position,
                                    "intervention": intervention,
                                    "rule": rule,
                                    "labels": "plotted",
                                    "logits": logits,
                                    "anchor": anchor,
                                    "layer": layer,
                                    "n": 19 if (dataset, anchor) == ("nq", "question") and layer < 2 else 20,
                                    "share": 0.3 + layer / 100,
                                    "share_low": 0.2,
                                    "share_high": 0.6,
                                    "delta_p": mean,
                                    "low": mean - 2,
                                    "high": mean + 2,
                                    "delta_logit": mean / 25,
                                    "logit_low": mean / 25 - 0.1,
                                    "logit_high": mean / 25 + 0.1,
                                    "null": -20.0 if null else None,
                                    "null_low": -25.0 - layer if null else None,
                                    "null_high": -15.0 if null else None,
                                    "better_than_chance": not (dataset == "popqa" and layer == 5),
                                }


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    layers = [
        {"model": model, "dataset": dataset, "component": "resid", "position": "answer_last"}
        | {"intervention": intervention, "layer": layer, "auc": auc(dataset, intervention, layer)}
        | {"auc_low": auc(dataset, intervention, layer) - 0.05, "auc_high": auc(dataset, intervention, layer) + 0.05}
        | {"auc_shuffled": 0.5 + layer / 1000}
        for model, count in LAYERS.items()
        for dataset in DATASETS
        for intervention in ("clean", "exact_question", "random_question")
        for layer in range(count)
    ]
    deepest = [
        {"model": model, "dataset": dataset, "intervention": intervention, "layer": 4}
        | {"delta_p": (-52.0 if number < 4 else 2.0) if intervention == "exact_question" else -2.0}
        | {"question_anchored": number < 4, "hallucinated": number % 2 == 1}
        | {"logit_clean_first": number - 5.0, "logit_ko_first": number / 2, "question_form": FORMS_ASKED[number]}
        for model in MODELS
        for dataset in DATASETS
        for intervention in ("exact_question", "random_question")
        for number in range(10)
    ]
    accounts = [
        {"model": model, "dataset": dataset, "among": ALL_EXAMPLES, "layer": layer, "at_clean": [-5.0, 0.0, 4.0]}
        | {"one_curve": [0.0, 1.0, 2.0], "kept_curve": [-1.5, 1.0, (layer or 0) - 1.0], "level_lost": (layer or 0) / 2}
        | overall_gains(0.0 if dataset == "popqa" else 0.2)
        for model in MODELS
        for dataset in DATASETS
        for layer in (3, 4, None)
    ]
    overrides = {"null": pl.Float64, "null_low": pl.Float64, "null_high": pl.Float64}
    return {
        "summary": pl.DataFrame(list(summary_rows()), schema_overrides=overrides),
        "layers": pl.DataFrame(layers),
        "deepest": pl.DataFrame(deepest),
        "accounts": pl.DataFrame(accounts, infer_schema_length=None),
    }


@pytest.fixture(scope="module")
def summary(tables) -> pl.DataFrame:
    return tables["summary"]


@pytest.fixture(scope="module")
def figures(tables) -> dict[str, Figure]:
    return {kind: draw_figure(kind, tables, View(MODELS, DATASETS)) for kind in IN_EVERY_RUN}


def test_two_layers_have_one_tick_each(tables):
    two = {**tables, "summary": tables["summary"].filter(pl.col("layer") < 2)}
    for panel in draw_figure("family", two, View(MODELS, DATASETS)).axes:
        low, high = panel.get_xlim()
        assert [tick for tick in panel.get_xticks() if low <= tick <= high] == [0, 1]


def test_series_order_colours_lines_and_values_are_the_published_ones(figures):
    figure = figures["family"]
    assert [panel.get_title() for panel in figure.axes] == ["Small-1B", "Large-3B"]
    assert legend(figure) == [name for name, *_ in SERIES]
    for entry, (_, colour, style) in zip(figure.legends[0].legend_handles, SERIES, strict=True):
        assert (to_hex(entry.get_color()), entry.get_linestyle()) == (to_hex(colour), style)
    for (model, layers), panel in zip(LAYERS.items(), figure.axes, strict=True):
        drawn = curves(panel)
        assert len(drawn) == len(SERIES)
        assert not any(line.get_marker() not in ("", "None") for line in panel.get_lines()), "as published"
        for (_, colour, style), (dataset, anchor) in zip(SERIES, PAIRS, strict=True):
            curve = drawn[to_hex(colour), style]
            assert len(curve) >= layers - 2
            assert curve == pytest.approx({layer: value(model, dataset, anchor, int(layer)) for layer in curve})
        assert panel.get_xlabel() == "Layer"
        assert all(float(tick).is_integer() for tick in panel.get_xticks())
    assert figure.axes[0].get_ylabel() == "ΔP"
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_series_are_told_apart_without_colour(figures):
    """By dashes and, outside the published figure, by marks."""
    assert len(set(MARKERS)) == len(MARKERS) == len(PALETTE)
    for kind in ("share", "auc", "push"):
        marks = {
            (to_hex(line.get_color()), line.get_marker())
            for panel in figures[kind].axes
            for line in panel.get_lines()
            if line.get_marker() in MARKERS
        }
        assert marks == set(zip(COLOURS.values(), MARKERS, strict=False)), kind


@pytest.mark.parametrize("eyes", EYES)
def test_datasets_have_colours_that_every_reader_tells_apart(eyes):
    """Ten units of L*a*b* are told apart at a glance; four datasets, as published, have twice that."""
    assert nearest(PALETTE[:4], eyes) > 20
    assert nearest(PALETTE, eyes) > 10
    if eyes == "no long waves":
        assert nearest(["tab:blue", "tab:green", "tab:purple", "tab:pink"], eyes) < 10, "the simulation can fail"


def test_datasets_have_colours_that_stand_out_on_white():
    """Three to one is what the accessibility guidelines ask of lines in figures."""
    luminance = light(PALETTE) @ [0.2126, 0.7152, 0.0722]
    assert (1.05 / (luminance + 0.05)).min() >= 3


def test_outside_the_published_figure_a_dataset_has_one_colour(figures):
    *panels, control = np.reshape(figures["honest"].axes, (-1, len(MODELS)))[:, 0]
    for panel, colour in zip(panels, COLOURS.values(), strict=True):
        for drawn in (curves(panel), curves(control)):
            assert {(colour, "-"), (colour, "--")} <= set(drawn)


def test_a_group_of_fewer_than_20_is_drawn_faint_and_not_dropped(summary):
    panel = plot_family(summary, ["small"], DATASETS).axes[0]
    pink = to_hex("tab:pink"), "-"
    assert list(curves(panel, faint=True)[pink]) == [0, 1, 2, 3, 4, 5]
    assert list(curves(panel)[pink]) == [2, 3, 4, 5]


def test_a_line_breaks_where_a_layer_is_missing(summary):
    gap = summary.filter(pl.col("layer") != 3)
    lines = [
        line for line in plot_family(gap, ["small"], {"triviaqa": "T"}).axes[0].get_lines() if len(line.get_xdata()) > 1
    ]
    parts = [list(line.get_xdata()) for line in lines if not isinstance(line.get_xdata(), list)]
    assert sorted(parts) == [[0, 1, 2], [0, 1, 2], [4, 5], [4, 5]]


def test_a_layer_between_missing_ones_is_a_point(summary):
    lonely = summary.filter(pl.col("layer").is_in([0, 1, 3, 5]))
    panel = plot_family(lonely, ["small"], {"triviaqa": "T"}).axes[0]
    marks = {(len(line.get_xdata()), line.get_marker()) for line in panel.get_lines()}
    assert {(1, "o"), (2, "None")} == {(count, "None" if mark == "" else mark) for count, mark in marks}
    tables = {"summary": lonely.with_columns(n=pl.lit(50))}
    panel = draw_figure("push", tables, View({"small": "Small"}, DATASETS)).axes[0]
    points = {line.get_marker() for line in panel.get_lines() if len(line.get_xdata()) == 1}
    assert points == set(MARKERS[:4]), "each with the mark of its dataset"


def test_a_band_breaks_where_there_is_no_interval(summary):
    """And a layer without a value makes nothing faint."""
    at = pl.col("layer") == 3
    open_ended = summary.with_columns(pl.when(~at).then(pl.col("low", "high")), n=pl.lit(50), better_than_chance=True)
    bands = plot_family(open_ended, ["small"], {"triviaqa": "T"}).axes[0].collections
    spans = sorted(
        {(path.vertices[:, 0].min(), path.vertices[:, 0].max()) for band in bands for path in band.get_paths()}
    )
    assert spans == [(0, 2), (4, 5)]
    empty = open_ended.with_columns(pl.when(~at).then("delta_p"), n=pl.when(at).then(0).otherwise(50))
    figure = plot_family(empty, ["small"], {"triviaqa": "T"})
    assert "faint" not in figure.get_suptitle()


@pytest.mark.parametrize("cycle", ["cycler(color=['k', 'r'])", "cycler(linewidth=[9, 1])", "cycler(marker=['x', '+'])"])
def test_a_style_with_few_colours_or_none_draws_every_figure(cycle, tables, tmp_path):
    """And with no resolution of its own; nothing of a cycle but its colours reaches curves."""
    own = tmp_path / "own.mplstyle"
    own.write_text(f"axes.prop_cycle: {cycle}\n")
    for kind in ("lines", "family"):
        figure = draw_figure(kind, tables, View({"small": "Small"}, DATASETS, style=read_style(own)))
    widths = {line.get_linewidth() for line in figure.axes[0].get_lines()}
    assert widths <= {matplotlib.rcParamsDefault["lines.linewidth"], 0.8}
    assert {line.get_marker() for line in figure.axes[0].get_lines()} <= {"None", ""}


def test_a_figure_says_what_faint_means_if_something_is(summary):
    sure = summary.with_columns(n=pl.lit(50.0), better_than_chance=True)
    said = [plot_family(table, ["small"], {"popqa": "PopQA"}).get_suptitle() for table in (summary, sure)]
    assert ["faint: fewer than 20 examples" in text for text in said] == [True, False]


def test_a_layer_no_better_than_chance_is_drawn_faint(summary):
    panel = plot_family(summary, ["small"], {"popqa": "PopQA"}).axes[0]
    assert list(curves(panel)[BLUE, "-"]) == [0, 1, 2, 3, 4]


def is_grey(band) -> bool:
    return len(band.get_paths()) and to_hex(band.get_facecolor()[0]) == to_hex("0.4")


def test_the_honest_figure_has_both_groups_their_null_and_the_control(figures):
    figure = figures["honest"]
    *rows, control = np.reshape(figure.axes, (len(DATASETS) + 1, len(MODELS)))
    assert [over(panels[0]) for panels in (*rows, control)] == [*DATASETS.values(), "control"]
    assert {panel.get_ylabel() for panel in figure.axes[:: len(MODELS)]} == {"ΔP"}
    assert legend(figure) == [*DATASETS.values(), "Question-Anchored", "Answer-Anchored", "if one mechanism"]
    assert [dashes(key) for key in figure.legends[0].legend_handles[-3:]] == ["-", "--", ":"]
    for panels, dataset, colour in zip(rows, DATASETS, COLOURS.values(), strict=True):
        for model, panel, beside in zip(MODELS, panels, control, strict=True):
            for anchor, line in ANCHOR_LINES.items():
                whole = value(model, dataset, anchor, 3) + HONEST
                assert curves(panel)[colour, line][3] == pytest.approx(whole)
                assert curves(beside)[colour, line][3] == pytest.approx(0.1 * whole)
            assert {name for name, _ in curves(panel)} == {colour}, "of this dataset alone"
            nulls = [band for band in panel.collections if is_grey(band)]
            assert len(nulls) == 2
            lower = {x: y for x, y in nulls[0].get_paths()[0].vertices if y < -15}
            assert [lower[layer] for layer in range(6)] == [-25.0 - layer for layer in range(6)]
            assert set(curves(panel)[colour, ":"].values()) == {-20.0}
    for panel in control:
        assert ":" not in {line for _, line in curves(panel)}
        assert not any(map(is_grey, panel.collections))


def test_a_point_is_equally_high_in_all_rows_of_the_honest_figure(figures):
    """So that a reader sees how flat the control is."""
    panels = figures["honest"].axes
    assert len({panel.get_ylim() for panel in panels}) == 1
    tall = [panel.get_position().height for panel in panels]
    np.testing.assert_allclose(tall, tall[0], rtol=1e-3)


def test_the_push_figure_has_the_honest_gap_with_each_kind_of_logits(figures):
    figure = figures["push"]
    labels = [over(panel) for panel in figure.axes[::2]]
    assert labels == ["as measured", "without the common push", "without the common push and slope"]
    assert figure.axes[0].get_ylabel() == "gap, points of ΔP"
    for panels, logits in zip(np.reshape(figure.axes, (3, 2)), ("measured", "recentred", "residual"), strict=True):
        for model, panel in zip(MODELS, panels, strict=True):
            expected = value(model, "triviaqa", "gap", 3) + SHIFTS["honest", logits]
            assert curves(panel)[COLOURS["TriviaQA"], "-"][3] == pytest.approx(expected)
    assert legend(figure) == list(DATASETS.values()), "no gap has a null here"


def test_the_lines_figure_has_a_point_for_every_example_and_the_lines_of_its_layer(figures):
    figure = figures["lines"]
    fitted = ["if evidence is kept", "if it is lost", "all examples"]
    forms = ["yes or no", "choice", "when, how many", "other questions"]
    assert legend(figure) == ["right answer", "hallucinated", *forms, *fitted, "unchanged"]
    panels = np.reshape(figure.axes, (len(DATASETS), len(MODELS)))
    for panel, dataset in zip(panels[:, 0], DATASETS.values(), strict=True):
        points = np.concatenate([part.get_offsets() for part in panel.collections])
        assert sorted(map(tuple, points)) == [(number - 5.0, number / 2) for number in range(10)]
        lines = {
            dashes(line): list(zip(line.get_xdata(), line.get_ydata(), strict=True))
            for line in panel.get_lines()
            if not isinstance(line, AxLine) and to_hex(line.get_color()) == to_hex("0.15")
        }
        (unchanged,) = (line for line in panel.get_lines() if isinstance(line, AxLine))
        assert (unchanged.get_xy1(), unchanged.get_slope()) == ((0, 0), 1)
        if dataset == "PopQA":
            assert over(panel) == "PopQA\nlayer 4: by degrees"
            assert lines == {"-.": [(-5.0, 0.0), (0.0, 1.0), (4.0, 2.0)]}, "no second kind is seen"
        else:
            assert over(panel) == f"{dataset}\nlayer 4: two kinds"
            assert lines["-"] == [(-5.0, -1.5), (0.0, 1.0), (4.0, 3.0)]
            assert {height for _, height in lines["--"]} == {2.0}
            assert "-." not in lines


def test_points_show_the_answer_by_their_filling_and_the_question_by_their_shape(figures):
    """Whoever sees no colours, and whoever looks for a form that makes up a cluster, reads the same figure."""
    shapes = {"^": {"yes_no"}, "s": {"choice"}, "P": {"when", "how_many"}, "o": {"who", "which_what", "other", None}}
    outlines = {marker: MarkerStyle(marker).get_path().vertices.shape for marker in shapes}
    assert len(set(outlines.values())) == len(outlines)
    seen = {}
    for points in figures["lines"].axes[0].collections:
        (outline,) = points.get_paths()
        (marker,) = (marker for marker, shape in outlines.items() if shape == outline.vertices.shape)
        hollow = points.get_facecolor()[:, 3] == 0
        assert (points.get_edgecolor()[:, 3] > 0).all(), "hollow, and not gone"
        seen |= {int(x) + 5: (marker, hollow[number]) for number, (x, _) in enumerate(points.get_offsets())}
    assert sorted(seen) == list(range(10))
    for number, (marker, hollow) in seen.items():
        assert FORMS_ASKED[number] in shapes[marker]
        assert hollow == (number % 2 == 1), "hallucinated answers are hollow"


@pytest.mark.parametrize(("copies", "images"), [(70, 0), (80, len(DATASETS))])
def test_thousands_of_points_are_an_image_in_files_that_stay_small(tables, copies, images, tmp_path):
    """Ten examples of four datasets, so often: up to 3000 points are drawn one by one."""
    many = tables | {"deepest": pl.concat([tables["deepest"]] * copies)}
    style = read_style()
    figure = draw_figure("lines", many, View({"small": "Small"}, DATASETS, style=style))
    for suffix in ("svg", "pdf"):
        save(figure, tmp_path / f"lines.{suffix}", style)
    assert len(re.findall("<image", (tmp_path / "lines.svg").read_text())) == images
    assert (tmp_path / "lines.pdf").read_bytes().count(b"/Subtype /Image") >= images
    few = draw_figure("lines", tables, View({"small": "Small"}, DATASETS, style=style)).axes[0].collections[0]
    crowd = figure.axes[0].collections[0]
    assert crowd.get_sizes()[0] < few.get_sizes()[0]
    assert crowd.get_edgecolor()[0][3] < few.get_edgecolor()[0][3]


@pytest.mark.parametrize(
    ("kind", "added", "labels"),
    [
        ("words", "subject", ["exact question words cut", "subject cut"]),
        ("windows", "exact_question_w4", ["cut in all layers", "cut in the last 4 layers up to it"]),
        ("windows", "exact_question_w1", ["cut in all layers", "cut in the layer plotted"]),
    ],
)
def test_other_words_and_windows_have_a_curve_each(tables, kind, added, labels):
    half = (
        tables["summary"]
        .filter(intervention="exact_question")
        .with_columns(pl.col("delta_p", "low", "high") / 2, intervention=pl.lit(added))
    )
    figure = draw_figure(kind, tables | {"summary": pl.concat([tables["summary"], half])}, View(MODELS, DATASETS))
    assert sorted(legend(figure)) == labels
    panel = np.reshape(figure.axes, (4, 2))[1, 0]
    whole = value("small", "triviaqa", "gap", 3) + HONEST
    drawn = [curve[3] for curve in curves(panel).values()]
    assert sorted(drawn) == pytest.approx(sorted([whole, whole / 2]))
    colours = dict(zip(legend(figure), PALETTE, strict=False))
    assert curves(panel)[colours[labels[0]], "-"][3] == pytest.approx(whole), "each in the colour of its entry"


def test_a_salmon_swims_beside_its_model_where_it_was_made(tables):
    twins = {
        name: pl.concat([table, table.filter(model="small").with_columns(model=pl.lit("small+salmon"))])
        for name, table in tables.items()
    }
    view = View(MODELS, DATASETS)
    for kind in ("honest", "auc"):
        figure = draw_figure(kind, twins, view)
        assert "random weights" in legend(figure), kind
        small, large = (
            {colour for panel in panels for colour, line in curves(panel) if line == "-."}
            for panels in np.transpose(np.reshape(figure.axes, (-1, len(MODELS))))
        )
        assert small == set(COLOURS.values()), kind
        assert not large, kind
    assert "random weights" not in legend(draw_figure("honest", tables, view))


def test_a_family_is_drawn_in_logits_and_without_the_push(summary):
    figure = plot_family(summary, ["small"], DATASETS, rule="honest", logits="recentred", quantity="delta_logit")
    assert figure.axes[0].get_ylabel() == "Δlogit"
    assert "without the common push" in figure.get_suptitle()
    expected = (value("small", "triviaqa", "question", 3) + SHIFTS["honest", "recentred"]) / 25
    assert curves(figure.axes[0])[GREEN, "-"][3] == pytest.approx(expected)


def test_the_auc_figure_has_the_clean_probe_solid_and_the_knocked_out_one_dashed(figures):
    figure = figures["auc"]
    assert legend(figure) == [*DATASETS.values(), "clean", "cut", "shuffled labels"]
    keys = dict(zip(legend(figure), figure.legends[0].legend_handles, strict=True))
    assert [dashes(keys[state]) for state in ("clean", "cut", "shuffled labels")] == ["-", "--", ":"]
    assert {title: to_hex(keys[title].get_color()) for title in COLOURS} == COLOURS
    for panel, layers in zip(figure.axes, LAYERS.values(), strict=True):
        drawn = curves(panel)
        for dataset, title in DATASETS.items():
            for line, intervention in (("-", "clean"), ("--", "exact_question")):
                expected = {layer: auc(dataset, intervention, layer) for layer in range(layers)}
                assert drawn[COLOURS[title], line] == pytest.approx(expected)
            assert drawn[COLOURS[title], ":"] == pytest.approx({layer: 0.5 + layer / 1000 for layer in range(layers)})


def test_the_share_figure_has_the_percentage_of_question_anchored_examples(figures):
    figure = figures["share"]
    assert legend(figure) == list(DATASETS.values())
    assert figure.axes[0].get_ylabel() == "Question-Anchored, %"
    assert curves(figure.axes[1])[COLOURS["TriviaQA"], "-"] == pytest.approx({layer: 30 + layer for layer in range(9)})
    band = figure.axes[1].collections[1].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((20, 60))


def test_the_grid_has_every_component_and_position_of_every_model(figures):
    figure = figures["grid"]
    panels = np.array(figure.axes).reshape(2, 3, 3)  # models, components, positions
    assert [panel.get_title().strip() for panel in panels[0, 0]] == list(TEXT_ORDER)
    for m, model in enumerate(MODELS):
        for c, component in enumerate(COMPONENTS):
            assert over(panels[m, c, 0]) == f"{MODELS[model]}, {component}"
            for p in range(len(TEXT_ORDER)):
                expected = value(model, "triviaqa", "question", 2) + 3 * c + p - 1
                assert curves(panels[m, c, p])[COLOURS["TriviaQA"], "-"][2] == pytest.approx(expected)
    assert legend(figure) == [*DATASETS.values(), "Question-Anchored", "Answer-Anchored"]


def test_the_grid_has_a_column_for_every_position():
    assert sorted(TEXT_ORDER) == sorted(POSITIONS)


def test_the_grid_shows_what_was_measured_and_nothing_else(tables):
    of_part = pl.col("component").is_in(["mlp", "resid"]) & (pl.col("position") == "answer_last")
    figure = draw_figure("grid", tables | {"summary": tables["summary"].filter(of_part)}, View(MODELS, DATASETS))
    assert list(map(over, figure.axes)) == [f"{name}, {part}" for name in MODELS.values() for part in ("resid", "mlp")]


def test_the_distribution_stacks_the_anchors_and_outlines_the_control(figures):
    figure = figures["distribution"]
    assert legend(figure) == ["Question-Anchored", "Answer-Anchored", "control"]
    assert [over(panel) for panel in figure.axes[::2]] == [f"{title}\nlayer 4, n = 10" for title in DATASETS.values()]
    panel = figure.axes[0]
    tall = {
        (to_hex(bar.get_facecolor()), bar.get_x()): bar.get_height() for bar in panel.patches if bar.get_height() > 0
    }
    assert tall == pytest.approx({(PALETTE[0], -55.0): 40.0, (PALETTE[1], 0.0): 60.0})
    (control,) = (line for line in panel.get_lines() if to_hex(line.get_color()) == to_hex("0.15"))
    assert max(control.get_ydata()) == pytest.approx(100)
    hatches = {to_hex(bar.get_facecolor()): bar.get_hatch() for bar in panel.patches}
    assert hatches == {PALETTE[0]: None, PALETTE[1]: "/////"}, "the groups are told apart without colour"


@pytest.mark.parametrize("question", [True, False, None])
def test_the_hatched_bars_are_those_of_answer_anchored_whoever_comes_first(question, tables):
    """Of one group alone, and with the examples in the other order."""
    deepest = tables["deepest"].reverse()
    if question is not None:
        deepest = deepest.with_columns(question_anchored=pl.lit(question))
    panel = draw_figure("distribution", tables | {"deepest": deepest}, View(MODELS, DATASETS)).axes[0]
    groups = {to_hex(bar.get_facecolor()) for bar in panel.patches if bar.get_height()}
    assert groups == {True: {PALETTE[0]}, False: {PALETTE[1]}, None: set(PALETTE[:2])}[question]
    assert {to_hex(bar.get_facecolor()) for bar in panel.patches if bar.get_hatch()} == groups - {PALETTE[0]}


def test_the_distribution_spans_what_is_there_and_no_more(figures, tables):
    low, high = figures["distribution"].axes[0].get_xlim()
    assert -65 < low <= -55
    assert 5 <= high < 15
    wide = tables["deepest"].with_columns(delta_p=pl.col("delta_p") + 45 * (pl.col("delta_p") > 0))
    panel = draw_figure("distribution", tables | {"deepest": wide}, View(MODELS, DATASETS)).axes[0]
    assert panel.get_xlim()[1] > 47
    answers = [bar.get_height() for bar in panel.patches if bar.get_hatch()]
    assert sum(answers) == pytest.approx(60), "no example is left out"


def test_faint_points_and_bands_lie_inside_the_axes(summary):
    deep = pl.when((pl.col("n") < 20) & (pl.col("layer") == 0)).then(-95.0).otherwise(pl.col("delta_p"))
    panel = plot_family(summary.with_columns(deep.alias("delta_p")), ["small"], DATASETS).axes[0]
    low, high = panel.get_ylim()
    place = summary.filter(model="small", component="resid", position="answer_last", rule="flip")
    assert low < -95
    assert high > place["high"].max()


def test_the_bands_are_the_intervals(summary):
    panel = plot_family(summary, ["small"], {"popqa": "PopQA"}).axes[0]
    (band,) = (some for some in panel.collections if to_hex(some.get_facecolor()[0]) == BLUE)
    band = band.get_paths()[0].vertices[:, 1]
    assert band.min() == value("small", "popqa", "question", 4) - 2, "layer 5 is no better than chance"
    assert band.max() == value("small", "popqa", "question", 0) + 2


def test_the_published_figure_has_one_y_axis_that_holds_all_curves_and_bands(figures, summary):
    ((low, high),) = {panel.get_ylim() for panel in figures["family"].axes}
    drawn = summary.filter(component="resid", position="answer_last", intervention="exact_question", rule="flip")
    lowest, highest = drawn.filter(pl.col("anchor") != "gap").select(pl.min("low"), pl.max("high")).row(0)
    assert low < lowest < highest < high


def held(panel: Axes) -> np.ndarray:
    """The heights of all that is drawn in a panel."""
    lines = [np.asarray(line.get_ydata(), float) for line in panel.get_lines() if not isinstance(line, AxLine)]
    points = [some.get_offsets()[:, 1] for some in panel.collections if isinstance(some, PathCollection)]
    bands = [path.vertices[:, 1] for some in panel.collections if not points for path in some.get_paths()]
    bars = [np.array([0, patch.get_height()]) for patch in panel.patches]
    return np.concatenate([*lines, *points, *bands, *bars])


@pytest.mark.parametrize("kind", IN_EVERY_RUN)
def test_no_axis_is_half_empty(kind, figures):
    panels = figures[kind].axes
    for panel in panels:
        together = [other for other in panels if other is panel or panel.get_shared_y_axes().joined(panel, other)]
        values = np.concatenate([held(other) for other in together])
        low, high = panel.get_ylim()
        assert (np.nanmax(values) - np.nanmin(values)) / (high - low) > 0.6, kind


@pytest.mark.parametrize(
    ("intervention", "said"),
    [
        ("exact_question_w3", "exact question words cut in the last 3 layers up to the one plotted only"),
        ("exact_question_w1", "exact question words cut in the layer plotted only"),
        ("whole_question", "whole question cut"),
    ],
)
def test_the_figure_says_which_words_are_cut_and_in_which_layers(intervention, said, summary):
    cut = pl.lit(intervention).alias("intervention")
    figure = plot_family(summary.with_columns(cut), MODELS, DATASETS, intervention=intervention)
    assert " ".join(figure.get_suptitle().split()).startswith(f"{said}; anchors by")


def test_the_figure_says_by_itself_what_it_is_not(summary):
    """Bundled questions and random weights stand in the summary; nobody has to remember them."""
    bundled = "PopQA, NQ: questions bundled with Anchorscope, not the published datasets."
    random = "Large-3B: random weights; their numbers mean nothing about trained models."
    odd = summary.with_columns(
        source=pl.when(pl.col("dataset").is_in(["popqa", "nq"])).then(pl.lit("bundled")).otherwise("source"),
        weights=pl.when(pl.col("model") == "large").then(pl.lit("random")).otherwise("weights"),
    )
    assert not list(notes(summary, MODELS, DATASETS))
    assert list(notes(odd, MODELS, DATASETS)) == [bundled, random]
    assert next(notes(odd, {"small": "Small-1B"}, {"nq": "NQ"})).startswith("NQ: questions bundled")
    figure = plot_family(odd, MODELS, DATASETS, note="And more.")
    said = " ".join(figure.get_suptitle().split())
    assert said.endswith(f"{bundled} {random} And more.")
    assert [panel.get_title() for panel in figure.axes] == ["Small-1B", "Large-3B (random weights)"]


def test_a_title_says_where_weights_are_random():
    marked = mark_random({"a": "A", "b": "B", "c": "C"}, {"a": "random", "b": "trained"})
    assert marked == {"a": "A (random weights)", "b": "B", "c": "C"}


def test_what_could_not_be_probed_is_named():
    models = {"a": {"weights": "trained"}, "b": {"weights": "random"}}
    about = {"models": models, "not_probed": [["a", "x", "too few"], ["b", "x", "too few"], ["c", "x", "too few"]]}
    said = "Not probed, because the answers are too few or too one-sided: A on X, B (random weights) on X."
    assert unprobed(about, {"a": "A", "b": "B"}, {"x": "X"}) == said
    assert unprobed(about | {"not_probed": []}, {"a": "A"}, {"x": "X"}) == ""
    assert unprobed(about, {"a": "A"}, {"y": "Y"}) == "", "of what is shown"


def test_a_model_that_was_not_run_in_packs_is_named():
    plain = {"name": "plain", "reason": "they are odd", "attention": "sdpa", "without_attention": []}
    paths = {"a": {**plain, "name": "packed"}, "b": plain, "c": {**plain, "without_attention": [0, 2]}, "d": None}
    said = [
        "B: run on the plain path, in padded batches through its own attention: they are odd.",
        "C: run on the plain path, in padded batches through its own attention: they are odd. Layers 0, 2 have no "
        "attention: nothing is cut in them.",
    ]
    assert list(plain_paths({"paths": paths}, {"a": "A", "b": "B", "c": "C", "d": "D"})) == said


def test_a_model_whose_states_rounding_moves_far_is_named():
    paths = {"a": {"dtype": "bfloat16", "moved": 0.12}, "b": {"dtype": "bfloat16", "moved": 0.04}}
    (said,) = coarse_roundings(
        {"paths": {**paths, "c": {"dtype": "float32", "moved": None}, "d": None}},
        dict(zip("abcd", "ABCD", strict=True)),
    )
    assert said.startswith("A: rounding to bfloat16 moves its states by 12 %")
    assert "`dtype: float32`" in said


@pytest.mark.slow
def test_a_panel_without_a_series_says_so_and_takes_nothing_from_the_legend(tables, figures):
    """The model on the left could not be probed on any dataset."""
    right = {name: table.filter(model="large") for name, table in tables.items()}
    for kind in IN_EVERY_RUN:
        figure = draw_figure(kind, right, View(MODELS, DATASETS))
        assert legend(figure) == legend(figures[kind]), kind
        said = [NO_DATA in [text.get_text() for text in panel.texts] for panel in figure.axes]
        assert sum(said) == len(figure.axes) / 2, kind
        assert said[0], kind


def test_a_model_that_the_summary_does_not_have_is_one_sentence(summary):
    with pytest.raises(ValueError, match=r"^The summary has no model huge; it has small, large\.$"):
        plot_family(summary, ["small", "huge"])


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"rule": "replicat"}, "The summary has no rule replicat; it has flip, honest"),
        ({"intervention": "random"}, "The summary has no intervention random; it has exact_question, random_question"),
        (
            {"component": "residual"},
            "The summary has no component residual \\(did you mean resid\\?\\); it has resid, attn, mlp",
        ),
        ({"logits": "raw"}, "The summary has no logits raw; it has measured, recentred, residual"),
        ({"quantity": "p"}, "plot_family has no quantity p; it has delta_p, delta_logit"),
        ({"position": "last"}, "The summary has no position last; it has before_answer, answer_last, final"),
        ({"models": 3}, "models is 3; it must be names, or names with the titles to show"),
        ({"models": {"small": "One", "large": "One"}}, "Two models have the same title; give each one of its own"),
        ({"rulle": "flip"}, "plot_family has no argument rulle \\(did you mean rule\\?\\); it has rule, intervention"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(summary, chosen, said):
    with pytest.raises(ValueError, match=said):
        plot_family(summary, **chosen)


@pytest.mark.slow
def test_a_run_without_the_control_is_drawn(tables):
    cut = {
        name: table.filter(pl.col("intervention") != "random_question") if "intervention" in table.columns else table
        for name, table in tables.items()
    }
    for kind in IN_EVERY_RUN:
        assert draw_figure(kind, cut, View({"small": "Small"}, DATASETS)).axes, kind


def test_without_names_everything_is_shown_in_the_order_of_the_summary(summary):
    figure = plot_family(summary)
    assert [panel.get_title() for panel in figure.axes] == list(MODELS)
    assert legend(figure) == [f"{'QA'[number % 2]}-Anchored ({list(DATASETS)[number // 2]})" for number in range(8)]


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("count", "column"),
    [
        pytest.param(1, True, marks=SLOW),
        (2, True),
        pytest.param(4, True, marks=SLOW),
        pytest.param(1, False, marks=SLOW),
        pytest.param(2, False, marks=SLOW),
        pytest.param(4, False, marks=SLOW),
    ],
)
def test_figures_of_any_number_of_models_are_readable_at_both_widths(tables, count, column):
    """No text is cut off or runs into the next, type is no smaller than 5.5 points, one or two panels fit their width,
    and panels have room.
    """
    names = [f"model-{number}" for number in range(count)]
    many = {
        name: pl.concat(table.filter(model="small").with_columns(model=pl.lit(one)) for one in names)
        for name, table in tables.items()
    }
    many["summary"] = many["summary"].with_columns(source=pl.lit("bundled"), weights=pl.lit("random"))
    datasets = {**DATASETS, "hotpotqa": "HotpotQA with the distracting paragraphs of its second release"}
    titles = {name: f"Qwen2.5-Coder-1.5B-{name}-Instruct" for name in names}
    view = View(titles, datasets, style=read_style(column=column))
    for kind in IN_EVERY_RUN:
        if (kind, count) == ("grid", 4):
            continue  # it grows downwards only, and takes long
        figure = draw_figure(kind, many, view)
        assert outside(figure) == [], kind
        if count <= 2:
            assert figure.get_figwidth() == (3.3 if column else 6.9), kind
        if kind in ("family", "auc", "share"):
            assert len({panel.get_position().y0 for panel in figure.axes}) == 1, "one row of panels"
        texts = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text()]
        assert min(text.get_fontsize() for text in texts) >= 5.5, kind
        assert min(panel.get_position().height for panel in figure.axes) * figure.get_figheight() > 0.7, kind


def test_a_style_file_sets_colours_sizes_and_type(tables, tmp_path):
    own = tmp_path / "own.mplstyle"
    text = BUNDLED_STYLE.read_text()
    for old, new in (("'tab:blue'", "'black'"), ("font.size: 8", "font.size: 11"), ("6.9, 2.4", "5, 4")):
        assert old in text
        text = text.replace(old, new)
    own.write_text(text)
    figure = draw_figure("family", tables, View(MODELS, DATASETS, style=read_style(own)))
    assert ("#000000", "-") in curves(figure.axes[0])
    assert figure.axes[0].yaxis.label.get_fontsize() == 11
    assert figure.get_figwidth() == 5
    assert figure.get_figheight() > 4, "legend and notes take more"


def test_no_style_starts_latex(summary, tmp_path):
    own = tmp_path / "own.mplstyle"
    own.write_text(f"{BUNDLED_STYLE.read_text()}\ntext.usetex: True\ntext.latex.preamble: \\input{{/etc/hostname}}\n")
    save(plot_family(summary, style=own), tmp_path / "figure.svg", read_style(own))
    assert "Layer" in (tmp_path / "figure.svg").read_text()


def test_a_title_is_text_and_no_formula(summary, tmp_path):
    title = "Costs $5_a or 6^b$ & <more>"
    save(plot_family(summary, {"small": title}, {"nq": title}), tmp_path / "figure.svg", read_style())
    texts = re.findall(r">([^<>]+)</text>", (tmp_path / "figure.svg").read_text())
    shown = [unescape(text) for text in texts]
    assert {title, f"Q-Anchored ({title})"} <= set(shown)


def test_every_kind_of_figure_has_a_function_and_a_caption_for_snakemakes_report():
    kinds = (*FIGURE_KINDS, *DETECTION_KINDS)
    assert [kind.name for kind in kinds] == list(DRAW)
    for kind in kinds:
        assert DRAW[kind.name].__name__ == f"draw_{kind.name}"
        assert (ROOT / f"workflow/report/{kind.name}.rst").read_text().strip()


def test_a_kind_that_compares_places_is_drawn_only_where_there_are_several():
    always = ["family", "honest", "push", "lines", "auc", "share", "distribution"]
    assert kinds_drawn(1, words=1, windows=1) == always
    assert set(kinds_drawn(9, words=1, windows=1)) == {*always, "grid"}
    assert set(kinds_drawn(1, words=3, windows=2)) == {*always, "words", "windows"}
    assert kinds_drawn(1, words=1, windows=1, experiments=["awareness"]) == [*always, "awareness"]


@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_disk_that_a_figure_fills_is_named_in_one_sentence(suffix, disk, tmp_path):
    """Wherever in the file that happens: Matplotlib cannot close some pieces of a PDF that it could not begin."""
    figure, style = Figure(figsize=(2, 2)), read_style(BUNDLED_STYLE)
    figure.add_subplot(title="Some words in bold", xlabel="and $x^2$").plot(np.random.default_rng(0).random(2000))
    save(figure, tmp_path / f"whole.{suffix}", style)
    pages = -(-(tmp_path / f"whole.{suffix}").stat().st_size // resource.getpagesize())
    assert pages > 3
    for some in range(1, pages):
        resize(disk, some * resource.getpagesize() // 1024)
        with pytest.raises(OSError, match=f"^{disk}/figure.{suffix} {FULL}"):
            save(figure, disk / f"figure.{suffix}", style)
        assert not list(disk.iterdir())


def test_the_list_of_kinds_takes_snakemake_no_time_to_import():
    code = "import sys, anchorscope.draw.registry; print(*{'matplotlib', 'polars', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_files_hold_real_text_and_are_the_same_twice(tables, tmp_path):
    style = read_style()
    for attempt in ("one", "two"):
        figure = draw_figure("family", tables, replace(View(MODELS, DATASETS, style=style), note="A note."))
        for kind in ("png", "pdf", "svg"):
            save(figure, tmp_path / f"{attempt}.{kind}", style)
    for kind in ("png", "pdf", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    svg = (tmp_path / "one.svg").read_text(encoding="utf-8")
    texts = [text.strip() for text in re.findall(r">([^<>]+)</text>", svg)]
    assert {"ΔP", "Layer", "Small-1B"} <= set(texts)
    assert any(text.endswith("A note.") for text in texts)
    assert [text for text in texts if "-Anchored (" in text] == [name for name, *_ in SERIES]
    colours = {to_hex(colour) for _, colour, *_ in SERIES}
    assert colours <= set(re.findall(r"stroke: (#[0-9a-f]{6})", svg))
    assert b"/CIDFontType2" in (tmp_path / "one.pdf").read_bytes(), "type in the PDF is type"
    image = matplotlib.image.imread(tmp_path / "one.png")
    assert image.shape[1] == 2070, "300 dpi"


def source(tables, folder) -> Source:
    """The tables as files, as a run has them."""
    files = {name: str(folder / f"{name}.parquet") for name in tables}
    for name, table in tables.items():
        write_frame(files[name], table, {})
    return Source(files, MODELS, DATASETS, headline=vars(PUBLISHED_PLACE), note="", style=str(BUNDLED_STYLE))


@pytest.mark.slow
def test_figures_drawn_side_by_side_are_those_drawn_one_after_another(tables, tmp_path):
    for processes in (1, 2):
        wanted = {
            name: [str(tmp_path / f"{processes}/{name}.{end}") for end in ("png", "svg")]
            for name in ("share", "auc_column")
        }
        draw_figures(wanted, source(tables, tmp_path), processes)
    alone, together = (sorted((tmp_path / name).iterdir()) for name in ("1", "2"))
    assert [file.name for file in alone] == [file.name for file in together]
    assert len(alone) == 4
    for one, other in zip(alone, together, strict=True):
        assert one.read_bytes() == other.read_bytes()
    widths = {file.stem: matplotlib.image.imread(file).shape[1] for file in alone if file.suffix == ".png"}
    assert widths == {"share": 2070, "auc_column": 990}


def test_what_another_process_could_not_draw_is_said_in_its_own_words(tables, tmp_path):
    wanted = {"share": [str(tmp_path / "share.svg")], "nothing": []}
    with pytest.raises(RuntimeError, match="KeyError: 'nothing'"):
        draw_figures(wanted, source(tables, tmp_path), 2)
    assert (tmp_path / "share.svg").exists()
