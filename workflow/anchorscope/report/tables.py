"""The tables of the report: what was asked, what was answered, how well it can be probed, and what came of it."""

from collections.abc import Mapping
from html import escape

import polars as pl

Titles = Mapping[str, str]
MINUS = "−"
HEADINGS = {
    "deepest": "At the deepest layer",
    "auc": "Probes",
    "accuracy": "Answers",
    "questions": "Questions",
}
EXPLAINED = {
    "deepest": """The layer where the Question-Anchored mean is lowest, under the published grouping (flip) and under
the honest one (replicate). The gap is Q minus A, with its 95 % interval.""",
    "auc": """How well the probe of the reference layer, the one with the best clean AUC, ranks right and hallucinated
answers: clean, with the exact question words cut, and with as many other words cut. The calibration error is that of
the clean probe.""",
    "accuracy": "Refusals are left out of the analysis; balance leaves out some of the larger class.",
    "questions": "Rows of each dataset, kept and dropped.",
}


def table(frame: pl.DataFrame) -> str:
    """A data frame as an HTML table; every text is escaped."""
    kinds = [' class="number"' if kind.is_numeric() else "" for kind in frame.dtypes]
    names = [name.replace("_", " ") for name in frame.columns]
    head = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    rows = "\n".join(
        f"<tr>{''.join(f'<td{kind}>{escape(text(value))}</td>' for kind, value in zip(kinds, row, strict=True))}</tr>"
        for row in frame.iter_rows()
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table></div>'


def text(value: object) -> str:
    """A value as a reader wants it: numbers to one place, nothing as a dash."""
    if value is None:
        return "–"
    return f"{value:.1f}".replace("-", MINUS) if isinstance(value, float) else str(value)


def between(low: float | None, high: float | None, places: int = 1) -> str:
    """An interval."""
    if low is None or high is None:
        return "–"
    return f"{low:.{places}f} … {high:.{places}f}".replace("-", MINUS)


def named(frame: pl.DataFrame, models: Titles, datasets: Titles) -> pl.DataFrame:
    """Rows in the order of the config, models and datasets by their titles."""
    titles = {name: names for name, names in (("model", models), ("dataset", datasets)) if name in frame.columns}
    order = [
        pl.col(name).replace_strict({one: place for place, one in enumerate(names)}, return_dtype=pl.Int32)
        for name, names in titles.items()
    ]
    return frame.sort(*order, maintain_order=True).with_columns(
        pl.col(name).replace(names) for name, names in titles.items()
    )


def numbers_section(tables: Mapping[str, pl.DataFrame]) -> str:
    """The tables of this module, each with what it shows."""
    return "\n".join(
        f'<h3>{HEADINGS[name]}</h3>\n<p class="soft">{EXPLAINED[name]}</p>\n{table(frame)}'
        for name, frame in tables.items()
    )


def deepest_layers(summary: pl.DataFrame, component: str, position: str) -> pl.DataFrame:
    """One row a model, dataset and rule: Q, A and gap at the layer where Q is lowest."""
    keys = ["model", "dataset", "rule"]
    rows = summary.filter(
        pl.col("rule").is_in(["flip", "replicate"]),
        component=component,
        position=position,
        intervention="exact_question",
    )
    question, answer, gap = (rows.filter(anchor=name) for name in ("question", "answer", "gap"))
    return (
        question.drop_nulls("low")  # of two examples and more, as everywhere else
        .sort("delta_p", "layer")
        .unique(keys, keep="first", maintain_order=True)
        .join(answer, on=[*keys, "layer"], suffix="_a")
        .join(gap, on=[*keys, "layer"], suffix="_gap")
        .sort(keys)
        .select(
            *keys,
            "layer",
            n_Q="n",
            n_A="n_a",
            ΔP_Q="delta_p",
            ΔP_A="delta_p_a",
            gap="delta_p_gap",
            interval=_between("low_gap", "high_gap", 1),
            AUC_clean=_hundredths("auc_clean"),
            AUC_cut=_hundredths("auc_intervened"),
        )
        .rename({"interval": "95 % interval"})
    )


def _hundredths(column: str) -> pl.Expr:
    return pl.col(column).map_elements("{:.2f}".format, return_dtype=pl.String)


def _between(low: str, high: str, places: int) -> pl.Expr:
    return pl.struct(low=low, high=high).map_elements(
        lambda ends: between(ends["low"], ends["high"], places), return_dtype=pl.String
    )


def kept_questions(questions: pl.DataFrame) -> pl.DataFrame:
    """One row a dataset: rows kept, rows dropped, and why."""
    dropped = pl.col("verdict") != "kept"
    reason = pl.format("{} {}", "rows", "verdict").filter(dropped)
    return questions.group_by("dataset", maintain_order=True).agg(
        kept=pl.col("rows").filter(~dropped).sum(),
        dropped=pl.col("rows").filter(dropped).sum(),
        because=reason.str.join(", ").replace("", None),
    )


def accuracy(examples: pl.DataFrame) -> pl.DataFrame:
    """One row a model and dataset: how its answers were judged, and how many are analysed."""
    return examples.select(
        *("model", "dataset", "asked", "right", "wrong", "refused"),
        (100 * pl.col("right") / pl.col("asked")).alias("right, % of asked"),
        *("left_out_by_balance", "analysed"),
    )


def reference_auc(layers: pl.DataFrame, component: str, position: str) -> pl.DataFrame:
    """One row a model and dataset: how well the probe of its reference layer ranks, clean and cut."""
    rows = layers.filter("is_reference").filter(component=component, position=position)
    found = pl.format("{} ({})", _hundredths("auc"), _between("auc_low", "auc_high", 2))
    keys = ["model", "dataset", "layer"]
    clean, cut, control = (
        rows.filter(intervention=name).select(*keys, found.alias(f"AUC {state} (95 % interval)"), "calibration_error")
        for name, state in (("clean", "clean"), ("exact_question", "question cut"), ("random_question", "control"))
    )
    return (
        clean.join(cut.drop("calibration_error"), on=keys, how="left")
        .join(control.drop("calibration_error"), on=keys, how="left")
        .select(pl.exclude("calibration_error"), calibration_error=_hundredths("calibration_error"))
    )
