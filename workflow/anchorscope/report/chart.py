"""The interactive family figure: a Vega-Lite chart of every series, with a menu for each key that tells them apart."""

from collections.abc import Iterable, Mapping
from typing import cast

import altair as alt
import polars as pl
import vl_convert
from markupsafe import Markup
from matplotlib.colors import to_hex

from anchorscope.draw.style import BAND_OPACITY, FAINT, GREY, MARKERS, Style, on_dark_page
from anchorscope.draw.titles import (
    ANCHOR_LETTERS,
    FAINT_MEANS,
    FEW,
    IF_ONE_MECHANISM,
    RULE_TITLES,
    TAKEN_OUT,
    TEXT_ORDER,
    intervention_title,
)
from anchorscope.draw.view import CONFIDENCE, FIRM, QUANTITY_COLUMNS, Quantity, View
from anchorscope.extract.axes import COMPONENTS, window_of
from anchorscope.report.page import render
from anchorscope.summarise.claims_page import LOGITS_TITLES

CURVE_KEYS = ["model", "dataset", "component", "position", "rule", "logits", "intervention", "anchor"]
CHANGES = [name for quantity in QUANTITY_COLUMNS.values() for name in (quantity.value, quantity.low, quantity.high)]
POINTS = ["n", *CHANGES, "sure", "null_low", "null_high"]  # arrays, one value per layer
AT_REFERENCE = " at reference layers"
RULE_CHOICES = RULE_TITLES | {
    f"{rule}{AT_REFERENCE}": f"{RULE_TITLES[rule]}, labelled at the reference layers" for rule in ("crossfit", "honest")
}
AT_HEADLINE = ", at the component and position of the claims"  # others have no such logits
SIMULATED_BAND = to_hex(GREY)
MARKED = 8  # about how many layers of a curve have a marker
DASHES = {"question": [1, 0], "answer": [6, 3]}
SHAPES = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "M-1,-0.5L-0.5,-1L0,-0.5L0.5,-1L1,-0.5L0.5,0L1,0.5L0.5,1L0,0.5L-0.5,1L-1,0.5L-0.5,0Z",
    "*": "M0,-1L0.24,-0.32L0.95,-0.31L0.38,0.12L0.59,0.81L0,0.4L-0.59,0.81L-0.38,0.12L-0.95,-0.31L-0.24,-0.32Z",
}
FORMAT = "chosen_quantity === 'delta_p' ? '+.1f' : '+.2f'"
INTERVAL = (
    f"isValid(datum.lower) ? format(datum.lower, {FORMAT}) + ' … ' + format(datum.upper, {FORMAT}) : 'too few examples'"
)
TOOLTIP = [
    alt.Tooltip("series:N", title="Series"),
    alt.Tooltip("layer:Q", title="Layer"),
    alt.Tooltip("n:Q", title="n"),
    alt.Tooltip("delta_p:Q", title="ΔP", format="+.1f"),
    alt.Tooltip("delta_logit:Q", title="Δlogit", format="+.2f"),
    alt.Tooltip("interval:N", title="95 % interval"),
]
# Zero stands out among the lines of the grid.
CHANGE_AXIS = alt.Axis(gridOpacity=alt.condition("datum.value === 0", alt.value(0.6), alt.value(0.1)), tickCount=6)
CONFIG = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "gridColor": "currentColor",
        "domain": False,
        "tickColor": "currentColor",
        "tickOpacity": 0.3,
    },
    "header": {"labelColor": "currentColor", "labelFontSize": 13, "labelFontWeight": 600, "labelPadding": 8},
    "legend": {"labelColor": "currentColor", "labelFontSize": 12, "unselectedOpacity": 0.25},
}


def chart_section(spec: Mapping | None, style: Style) -> Markup:
    """The chart, the script that draws it, and how to read it; or that there is none, where nothing was probed."""
    colours = [SIMULATED_BAND, *map(to_hex, style.colours)]
    return render(
        "chart.html",
        faint=FAINT_MEANS.capitalize(),
        spec=spec,
        colours={colour: on_dark_page(colour) for colour in colours},
        meanings=RULE_CHOICES
        | {LOGITS_TITLES[name]: f"{TAKEN_OUT[name]}{AT_HEADLINE}" for name in ("recentred", "residual")},
        vega=Markup(javascript()),
    )


def javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    version = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    bundle = vl_convert.javascript_bundle(vl_version=version)  # type: ignore[call-arg]  # the snippet is optional
    return bundle.replace("</script", r"<\/script")


def records(summary: pl.DataFrame, models: Mapping[str, str], datasets: Mapping[str, str]) -> pl.DataFrame:
    """One row per series, with an array of all layers in each column of `POINTS`; models and datasets by title."""
    shown = summary.filter(
        pl.col("anchor").is_in(list(ANCHOR_LETTERS)),
        pl.col("model").is_in(list(models)),
        pl.col("dataset").is_in(list(datasets)),
    ).with_columns(
        pl.col("model").replace(models),
        pl.col("dataset").replace(datasets),
        pl.col("delta_p", "low", "high", "null_low", "null_high").cast(pl.Float64).round(1),
        pl.col("delta_logit", "logit_low", "logit_high").cast(pl.Float64).round(2),
        pl.when(labels="reference")
        .then(pl.col("rule").replace({rule: f"{rule}{AT_REFERENCE}" for rule in ("crossfit", "honest")}))
        .otherwise("rule")
        .alias("rule"),
        sure=FIRM.cast(pl.Int8),
    )
    whole = shown.sort("layer").group_by(CURVE_KEYS, maintain_order=True).agg(POINTS)
    known = pl.col("null_low").list.drop_nulls().list.len() > 0
    nothing = pl.lit([], pl.List(pl.Float64))
    return whole.with_columns(
        pl.when(known).then(pl.col(name)).otherwise(nothing).alias(name) for name in ("null_low", "null_high")
    ).sort(CURVE_KEYS)


def family_chart(summary: pl.DataFrame, view: View) -> dict:
    """The chart's Vega-Lite specification, with its data."""
    models, datasets = view.with_warnings(summary).models, view.datasets
    data = records(summary, models, datasets)
    styles = {
        f"{letter} {title}": {
            "colour": to_hex(colour),
            "dash": DASHES[anchor],
            "marker": SHAPES[MARKERS[number % len(MARKERS)]],
        }
        for number, (title, colour) in enumerate(view.dataset_palette.items())
        for anchor, letter in ANCHOR_LETTERS.items()
    }
    measured = [title for title in models.values() if title in set(data["model"])]
    wanted = {"rule": "honest", "logits": "measured", "quantity": "delta_p", "intervention": "exact_question"}
    menus = _menus(measured, list(datasets.values()), summary=summary, chosen={**wanted, **vars(view.headline)})
    chart = alt.FacetChart(
        data=alt.NamedData("series"),
        spec=_panel(styles, summary.filter(pl.col("model").is_in(list(view.models)))),
        facet=alt.Facet("model:N", title=None, sort=list(models.values()), header=alt.Header(labelLimit=0)),
        transform=[
            *(
                # Before the layers are taken apart, so that only those of the chosen are.
                alt.FilterTransform(f"chosen_{key} === null || datum.{key} === chosen_{key}")
                for key in menus
                if key in CURVE_KEYS
            ),
            *_flattened(),
        ],
        columns=len(models),
    )
    lists = {
        "label": list(styles),
        **{name: [style[name] for style in styles.values()] for name in ("colour", "marker")},
    }
    chart = chart.add_params(*menus.values(), *(alt.param(f"all_{name}", value=some) for name, some in lists.items()))
    spec = chart.resolve_scale(x="independent").configure(**CONFIG).to_dict()
    # Which Vega reads, and Altair does not know: the two legends stand below each other.
    spec["config"]["legend"]["layout"] = {"bottom": {"anchor": "start", "direction": "vertical"}}
    return {**spec, "data": {"values": data.to_dicts()}}


def _menus(
    models: list[str], datasets: list[str], summary: pl.DataFrame, chosen: Mapping[str, str]
) -> dict[str, alt.Parameter]:
    """One menu per key that tells series apart, with what was measured; all models and all datasets can be shown."""

    def measured(column: str, known: Iterable[str] = ()) -> list[str]:
        """In the order of `known`, others behind."""
        there = summary[column].unique(maintain_order=True).to_list()
        return sorted(there, key=lambda name: [*known, name].index(name))

    labels: dict[str, dict[str | None, str]] = {
        "model": {None: "all", **dict(zip(models, models, strict=True))},
        "dataset": {None: "all", **dict(zip(datasets, datasets, strict=True))},
        "component": {name: name for name in measured("component", COMPONENTS)},
        "position": {name: name for name in measured("position", TEXT_ORDER)},
        "rule": {name: name for name in RULE_CHOICES},
        "logits": {name: LOGITS_TITLES[name] for name in TAKEN_OUT},
        "quantity": {name: quantity.title for name, quantity in QUANTITY_COLUMNS.items()},
        "intervention": {name: _short_title(name) for name in measured("intervention")},
    }
    return {
        key: alt.param(
            f"chosen_{key}",
            value=chosen.get(key),
            bind=alt.binding_select(options=list(menu), labels=list(menu.values()), name=key.capitalize()),
        )
        for key, menu in labels.items()
        if len(menu) > 1
    }


def _short_title(intervention: str) -> str:
    """An intervention in few words, for a menu."""
    window = window_of(intervention)
    if window is not None:
        return "exact question words, " + (f"last {window} layers" if window > 1 else "one layer")
    return intervention_title(intervention).replace(": as many other words", ": other words").removesuffix(" cut")


def _flattened() -> list[alt.Transform]:
    """From one record per series to one per layer."""
    first = "datum.anchor === 'question'"
    step = f"max(1, floor(datum.layers / {MARKED}))"
    arrays = ["layer", *POINTS]
    computed = {
        "layers": "length(datum.n)",
        "layer": "sequence(length(datum.n))",
        "series": f"({first} ? '{ANCHOR_LETTERS['question']} ' : '{ANCHOR_LETTERS['answer']} ') + datum.dataset",
        "number": "indexof(all_label, datum.series)",
        "colour": "all_colour[datum.number]",
        "marker": "all_marker[datum.number]",
        "null": f"'{IF_ONE_MECHANISM}'",
    }
    by_layer = {
        **{name: _chosen_quantity(part) for name, part in (("change", "value"), ("lower", "low"), ("upper", "high"))},
        "firm": "datum.sure ? datum.change : null",
        "firm_low": "datum.sure ? datum.lower : null",
        "firm_high": "datum.sure ? datum.upper : null",
        "band_low": "chosen_quantity === 'delta_p' ? datum.null_low : null",
        "band_high": "chosen_quantity === 'delta_p' ? datum.null_high : null",
        "interval": INTERVAL,
        "marked": f"datum.layer % {step} === datum.number % {step}",
    }
    return [
        *(alt.CalculateTransform(calculate=formula, **{"as": name}) for name, formula in computed.items()),
        alt.FlattenTransform(flatten=arrays),
        *(alt.CalculateTransform(calculate=formula, **{"as": name}) for name, formula in by_layer.items()),
    ]


def _chosen_quantity(part: str) -> str:
    """The value, or an end of its interval, of the quantity that the menu says."""
    points, logits = (getattr(QUANTITY_COLUMNS[name], part) for name in ("delta_p", "delta_logit"))
    return f"chosen_quantity === 'delta_p' ? datum.{points} : datum.{logits}"


def _domain(summary: pl.DataFrame) -> alt.Scale:
    """The axis of the quantity that the menu says, the same for every other choice."""
    ends = {name: limits(summary, quantity) for name, quantity in QUANTITY_COLUMNS.items()}
    low, high = (
        alt.ExprRef(f"chosen_quantity === 'delta_p' ? {ends['delta_p'][end]} : {ends['delta_logit'][end]}")
        for end in (0, 1)
    )
    return alt.Scale(domainMin=low, domainMax=high, nice=False)


def limits(rows: pl.DataFrame, quantity: Quantity) -> tuple[float, float]:
    """Return the ends of a y axis that holds all curves and bands, also those that one mechanism alone would give."""
    curves = rows.filter(pl.col("anchor").is_in(list(ANCHOR_LETTERS)))
    banded = curves.filter(pl.col("n") >= FEW)
    columns = [curves[quantity.value], banded[quantity.low], banded[quantity.high]]
    if quantity is CONFIDENCE:
        columns += [curves["null_low"], curves["null_high"]]
    values = pl.concat([column.cast(pl.Float64).alias("value") for column in columns]).drop_nulls()
    least = 1.0 if quantity is CONFIDENCE else 0.1
    low, high = min([-least, *values]), max([least, *values])
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def _panel(styles: dict[str, dict], summary: pl.DataFrame) -> alt.LayerChart:
    """One model's panel: bands, faint and firm lines, markers, and the point under the pointer."""
    legend = alt.Legend(title=None, orient="bottom", symbolType="stroke", symbolSize=700, symbolStrokeWidth=2)
    colours, dashes = (
        alt.Scale(domain=list(styles), range=[style[name] for style in styles.values()]) for name in ("colour", "dash")
    )

    def height(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title="ΔP or Δlogit", scale=_domain(summary), axis=CHANGE_AXIS)

    # With few layers Vega also puts ticks between them, and would round their labels.
    only_layers = "datum.value === floor(datum.value) ? datum.label : ''"
    whole = alt.Axis(format="d", tickMinStep=1, tickCount=6, gridOpacity=0, labelFlush=False, labelExpr=only_layers)
    base = alt.Chart().encode(
        x=alt.X("layer:Q", title="Layer", scale=alt.Scale(nice=False), axis=whole),
        detail="series:N",
    )
    line = base.encode(
        stroke=alt.Stroke("series:N", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("series:N", scale=dashes, legend=legend),
    )
    filled = base.encode(fill=alt.Fill("colour:N", scale=None))
    point = filled.encode(y=height("change"), shape=alt.Shape("marker:N", scale=None))
    entry = alt.Legend(title=None, orient="bottom", symbolType="square", symbolSize=200)
    one_mechanism = alt.Fill("null:N", scale=alt.Scale(domain=[IF_ONE_MECHANISM], range=[SIMULATED_BAND]), legend=entry)
    everything = [{"series": label} for label in styles]
    shown = alt.selection_point("shown", fields=["series"], bind="legend", toggle="true", clear=False, value=everything)
    near = alt.selection_point(
        "near", fields=["model", "series", "layer"], on="pointerover", clear="pointerout", empty=False
    )
    layers = [
        base.mark_area(opacity=BAND_OPACITY).encode(y=height("band_low"), y2="band_high:Q", fill=one_mechanism),
        filled.mark_area(opacity=BAND_OPACITY).encode(y=height("firm_low"), y2="firm_high:Q"),
        # The first line is the one whose opacity the legend takes.
        line.mark_line(strokeWidth=1.6).encode(y=height("firm")).properties(name="curves").add_params(shown),
        line.mark_line(strokeWidth=1.6, opacity=FAINT).encode(y=height("change")),
        point.mark_point(filled=True, size=28)
        .encode(opacity=alt.condition("datum.sure", alt.value(1), alt.value(FAINT)))
        .transform_filter("datum.marked"),
        point.mark_point(filled=True, size=90)
        .encode(opacity=alt.condition(near, alt.value(1), alt.value(0)), tooltip=TOOLTIP)
        .properties(name="points")
        .add_params(near),
    ]
    panel = alt.layer(*layers).transform_filter(shown).properties(width=400, height=320)
    return cast(alt.LayerChart, panel)  # not faceted yet
