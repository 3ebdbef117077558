"""The figure: delta P against layer, one panel a model, two lines a dataset."""

from collections.abc import Collection
from pathlib import Path

import matplotlib
import numpy as np
import polars as pl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anchorscope.files import atomic

FEW = 20  # a group of fewer examples is drawn faint, and so is a layer whose probe is no better than chance
FAINT = 0.25
LINES = {"question": "-", "answer": "--"}
ONE_MECHANISM = "if one mechanism"
LETTERS = {"question": "Q", "answer": "A"}
RULE_TITLES = {
    "flip": "anchors by verdict flip at each layer",
    "fixed": "anchors by verdict flip at the reference layer",
    "crossfit": "anchors labelled and measured by different probes",
    "replicate": "anchors labelled and measured by different probes under different prompts",
}
INTERVENTION_TITLES = {
    "exact_question": "exact question words cut",
    "random_question": "control: as many other words cut",
}
STYLE = {
    "svg.fonttype": "none",  # text stays text
    "pdf.fonttype": 42,
    "svg.hashsalt": "anchorscope",  # the same figure gives the same file
    "font.family": "DejaVu Sans",  # comes with matplotlib and has the Greek letters
}


def draw_family(
    summary: pl.DataFrame,
    models: dict[str, str],  # name -> title, one panel each, in order
    datasets: dict[str, str],  # name -> title, in the order of the legend
    rule: str = "flip",
    intervention: str = "exact_question",
    component: str = "resid",
    position: str = "answer_last",
    note: str = "",
    random: Collection[str] = (),  # names of models whose weights are random
) -> Figure:
    """Panels of Question-Anchored (solid) and Answer-Anchored (dashed) delta P with 95 % bands."""
    place = summary.filter(
        (pl.col("component") == component) & (pl.col("position") == position) & pl.col("model").is_in(list(models))
    )
    chosen = place.filter((pl.col("rule") == rule) & (pl.col("intervention") == intervention))
    colours = sns.color_palette("tab10")
    with matplotlib.rc_context({**sns.axes_style("whitegrid"), **STYLE}):
        figure = Figure(figsize=(max(6.4, 4.6 * len(models)), 4.6), layout="constrained")
        panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
        for panel, (model, title) in zip(panels, models.items(), strict=True):
            series = [(dataset, anchor) for dataset in datasets for anchor in LINES]
            for index, (dataset, anchor) in enumerate(series):
                rows = chosen.filter(
                    (pl.col("model") == model) & (pl.col("dataset") == dataset) & (pl.col("anchor") == anchor)
                ).sort("layer")
                label = f"{LETTERS[anchor]} {datasets[dataset]}"
                _draw_series(panel, rows, colours[index % len(colours)], LINES[anchor], label)
                _draw_one_mechanism(panel, rows)
            panel.set(title=f"{title} (random weights)" if model in random else title, xlabel="Layer")
            panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
            panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].set(ylabel="ΔP", ylim=_limits(place))
        entries = [entry for panel in panels for entry in zip(*panel.get_legend_handles_labels(), strict=True)]
        entries.sort(key=lambda entry: entry[1] == ONE_MECHANISM)
        shown = {label: handle for handle, label in entries}  # one entry for all grey bands, after the series
        columns = -(-len(shown) // len(LINES))
        place = {"loc": "outside lower center", "ncols": columns, "frameon": False}
        small = {"fontsize": "x-small", "columnspacing": 1.2, "handlelength": 1.8}
        figure.legend(list(shown.values()), list(shown), **place, **small)
        heading = f"{INTERVENTION_TITLES[intervention]}; {RULE_TITLES[rule]}"
        figure.suptitle("\n".join(filter(None, [heading, note])), fontsize="x-small", color="0.35")
    return figure


def _limits(place: pl.DataFrame) -> tuple[float, float]:
    """One y axis for every rule and intervention of the same models, so that figures compare by eye."""
    drawn = place.filter(pl.col("anchor").is_in(list(LINES)))
    banded = drawn.filter(pl.col("n") >= FEW)
    values = [*drawn["delta_p"].drop_nulls(), *banded["low"].drop_nulls(), *banded["high"].drop_nulls()]
    low, high = min([-1.0, *values]), max([1.0, *values])
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _draw_series(panel: Axes, rows: pl.DataFrame, colour: tuple, line: str, label: str) -> None:
    layer = rows["layer"].to_numpy()
    mean, low, high = (rows[name].cast(pl.Float64).to_numpy().astype(float) for name in ("delta_p", "low", "high"))
    enough = ((rows["n"] >= FEW) & rows["better_than_chance"]).to_numpy()
    panel.plot(layer, mean, line, color=colour, alpha=FAINT, linewidth=1.4)
    panel.plot(layer, np.where(enough, mean, np.nan), line, color=colour, linewidth=1.8, label=label)
    panel.fill_between(layer, low, high, where=enough, color=colour, alpha=0.15, linewidth=0)


def _draw_one_mechanism(panel: Axes, rows: pl.DataFrame) -> None:
    """A grey band where the series would lie without two pathways."""
    band = rows.drop_nulls("null")
    if not band.is_empty():
        ends = (band[name].to_numpy() for name in ("layer", "null_low", "null_high"))
        panel.fill_between(*ends, color="0.4", alpha=0.3, linewidth=0, zorder=0, label=ONE_MECHANISM)


def save(figure: Figure, path: Path | str) -> None:
    """Write a figure whole or not at all, in the format of its suffix; the same figure gives the same bytes."""
    kind = Path(path).suffix.removeprefix(".")
    undated = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with matplotlib.rc_context(STYLE), atomic(path) as target:
        figure.savefig(target, format=kind, dpi=300, metadata=undated[kind])
