"""The figure holds the published series in the published style, read back from the figure and its SVG."""

import re

import matplotlib
import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_hex

from anchorscope.figures import FAINT, draw_family, save
from anchorscope.notes import note, random_models

DATASETS = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"}
MODELS = {"small": "Small-1B", "large": "Large-3B"}
SERIES = [
    ("Q PopQA", "tab:blue", "-"),
    ("A PopQA", "tab:orange", "--"),
    ("Q TriviaQA", "tab:green", "-"),
    ("A TriviaQA", "tab:red", "--"),
    ("Q HotpotQA", "tab:purple", "-"),
    ("A HotpotQA", "tab:brown", "--"),
    ("Q NQ", "tab:pink", "-"),
    ("A NQ", "tab:gray", "--"),
]


def value(model: str, dataset: str, anchor: str, layer: int) -> float:
    depth = -30.0 if anchor == "question" else -3.0
    return depth - 5 * list(DATASETS).index(dataset) - layer - 10 * (model == "large")


@pytest.fixture
def summary() -> pl.DataFrame:
    rows = []
    for model in MODELS:
        for dataset in DATASETS:
            for anchor in ("question", "answer", "all", "gap"):
                for layer in range(6):
                    mean = value(model, dataset, anchor, layer)
                    few = dataset == "nq" and anchor == "question" and layer < 2
                    for rule, shift in (("flip", 0), ("replicate", 10)):
                        rows.append(
                            {
                                "model": model,
                                "weights": "trained",
                                "dataset": dataset,
                                "component": "resid",
                                "position": "answer_last",
                                "intervention": "exact_question",
                                "rule": rule,
                                "anchor": anchor,
                                "layer": layer,
                                "n": 19 if few else 20,
                                "delta_p": mean + shift,
                                "low": mean + shift - 2,
                                "high": mean + shift + 2,
                                "null": -20.0 if rule == "flip" and anchor in ("question", "answer") else None,
                                "null_low": -25.0 - layer if rule == "flip" else None,
                                "null_high": -15.0 if rule == "flip" else None,
                                "better_than_chance": not (dataset == "popqa" and layer == 5),
                            }
                        )
    return pl.DataFrame(rows)


def test_series_order_colours_styles_and_values_are_the_published_ones(summary):
    figure = draw_family(summary, MODELS, DATASETS)
    assert [panel.get_title() for panel in figure.axes] == ["Small-1B", "Large-3B"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*(name for name, _, _ in SERIES), "if one mechanism"]
    for model, panel in zip(MODELS, figure.axes, strict=True):
        lines = {line.get_label(): line for line in panel.get_lines() if not line.get_label().startswith("_")}
        for (name, colour, style), (dataset, anchor) in zip(
            SERIES, [(dataset, anchor) for dataset in DATASETS for anchor in ("question", "answer")], strict=True
        ):
            line = lines[name]
            assert to_hex(line.get_color()) == to_hex(colour)
            assert line.get_linestyle() == style
            expected = [value(model, dataset, anchor, layer) for layer in range(6)]
            shown = np.asarray(line.get_ydata(), dtype=float)
            np.testing.assert_allclose(shown[~np.isnan(shown)], np.array(expected)[~np.isnan(shown)])
        assert panel.get_xlabel() == "Layer"
        assert all(float(tick).is_integer() for tick in panel.get_xticks())
    assert figure.axes[0].get_ylabel() == "ΔP"


def test_a_group_of_fewer_than_20_is_drawn_faint_and_not_dropped(summary):
    panel = draw_family(summary, {"small": "Small"}, DATASETS).axes[0]
    pink = [line for line in panel.get_lines() if to_hex(line.get_color()) == to_hex("tab:pink")]
    faint, full = sorted(pink, key=lambda line: line.get_alpha() or 1)
    assert faint.get_alpha() == FAINT
    assert np.isfinite(np.asarray(faint.get_ydata(), dtype=float)).all()
    assert np.isnan(np.asarray(full.get_ydata(), dtype=float)).tolist() == [True, True, False, False, False, False]


def test_a_layer_no_better_than_chance_is_drawn_faint(summary):
    panel = draw_family(summary, {"small": "Small"}, {"popqa": "PopQA"}).axes[0]
    full = next(line for line in panel.get_lines() if line.get_label() == "Q PopQA")
    assert np.isnan(np.asarray(full.get_ydata(), dtype=float)).tolist() == [False] * 5 + [True]


def test_a_grey_band_is_what_one_mechanism_shows_of_each_series(summary):
    panel = draw_family(summary, {"small": "Small"}, DATASETS).axes[0]
    bands = [band for band in panel.collections if band.get_label() == "if one mechanism"]
    assert len(bands) == 8
    lower = {x: y for x, y in bands[0].get_paths()[0].vertices if y < -15}
    assert [lower[layer] for layer in range(6)] == [-25.0 - layer for layer in range(6)]
    honest = draw_family(summary, {"small": "Small"}, DATASETS, rule="replicate").axes[0]
    assert all(band.get_label() != "if one mechanism" for band in honest.collections)


def test_faint_points_and_bands_lie_inside_the_axes(summary):
    deep = pl.when((pl.col("n") < 20) & (pl.col("layer") == 0)).then(-95.0).otherwise(pl.col("delta_p"))
    panel = draw_family(summary.with_columns(deep.alias("delta_p")), {"small": "Small"}, DATASETS).axes[0]
    low, high = panel.get_ylim()
    assert low < -95
    assert high > summary["high"].max() - 10
    assert low < summary["low"].min()


def test_the_bands_are_the_intervals(summary):
    panel = draw_family(summary, {"small": "Small"}, {"popqa": "PopQA"}).axes[0]
    band = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == value("small", "popqa", "question", 4) - 2, "layer 5 is no better than chance"
    assert band.max() == value("small", "popqa", "question", 0) + 2


def test_all_rules_share_one_y_axis(summary):
    flip = draw_family(summary, MODELS, DATASETS, rule="flip")
    replicate = draw_family(summary, MODELS, DATASETS, rule="replicate")
    limits = {panel.get_ylim() for figure in (flip, replicate) for panel in figure.axes}
    assert len(limits) == 1
    low, high = limits.pop()
    assert low < summary.filter(pl.col("anchor") == "question")["delta_p"].min()
    assert high > 0


def test_the_note_says_what_the_figure_is_not():
    bundled = "PopQA-mini: questions bundled with Anchorscope, not the published datasets."
    random = "A, B: random weights; their numbers mean nothing about trained models."
    window = "Windowed knockout: attention is cut in the last 3 layers up to the one plotted."
    missing = "Not probed, because the answers are too few or too one-sided: A on B."
    assert note([], [], None, []) == ""
    assert note(["PopQA-mini"], [], None, []) == bundled
    assert note([], ["A", "B"], None, []) == random
    assert note(["PopQA-mini"], ["A", "B"], 3, ["A on B"]) == f"{bundled}\n{random}\n{window}\n{missing}"


def test_the_panel_of_a_model_with_random_weights_says_so_whatever_its_title(summary):
    about = {"models": {"small": {"weights": "trained"}, "large": {"weights": "random"}}}
    assert random_models(about) == ["large"]
    for title in ("Large-3B", "Large-3B (trained weights)"):
        figure = draw_family(summary, {"small": "Small-1B", "large": title}, DATASETS, random=random_models(about))
        assert [panel.get_title() for panel in figure.axes] == ["Small-1B", f"{title} (random weights)"]


def test_a_panel_without_a_series_takes_nothing_from_the_legend(summary):
    """The model on the left could not be probed on any dataset."""
    both = draw_family(summary, MODELS, DATASETS)
    right = draw_family(summary.filter(model=list(MODELS)[1]), MODELS, DATASETS)
    legends = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in (both, right)]
    assert legends[0] == legends[1]
    assert legends[0][-1] == "if one mechanism"


def test_files_hold_real_text_and_are_the_same_twice(summary, tmp_path):
    for attempt in ("one", "two"):
        figure = draw_family(summary, MODELS, DATASETS, note="A note.")
        for kind in ("png", "pdf", "svg"):
            save(figure, tmp_path / f"{attempt}.{kind}")
    for kind in ("png", "pdf", "svg"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    texts = re.findall(r">([^<>]+)</text>", (tmp_path / "one.svg").read_text())
    assert {"ΔP", "Layer", "Small-1B", "Q PopQA", "A NQ", "A note."} <= {text.strip() for text in texts}
    with matplotlib.rc_context():
        image = matplotlib.image.imread(tmp_path / "one.png")
    assert image.shape[1] >= 2 * 1200
