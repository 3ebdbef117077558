"""The tables of the report: what was asked and answered, how well probes and text rank, and what the knockout did."""

import json
from collections.abc import Mapping

import polars as pl
from markupsafe import Markup

from anchorscope.draw.titles import intervention_title
from anchorscope.extract.axes import Headline
from anchorscope.files.licences import NOT_STATED
from anchorscope.report.figures import Link
from anchorscope.report.page import render
from anchorscope.summarise.parts import COVERED, DISTANCE, EQUAL, MIN_EXAMPLES
from anchorscope.summarise.wording import between

Titles = Mapping[str, str]


def named(frame: pl.DataFrame, models: Titles, datasets: Titles) -> pl.DataFrame:
    """Rows in the order of the config, models and datasets by their titles; one model alone needs no column."""
    titles = {name: names for name, names in (("model", models), ("dataset", datasets)) if name in frame.columns}
    order = [
        pl.col(name).replace_strict({one: rank for rank, one in enumerate(names)}, return_dtype=pl.Int32)
        for name, names in titles.items()
    ]
    shown = frame.sort(*order, maintain_order=True).with_columns(
        pl.col(name).replace(names) for name, names in titles.items()
    )
    return shown.drop("model", strict=False) if len(models) == 1 else shown


def numbers_section(
    found: Mapping[str, pl.DataFrame], summary: pl.DataFrame, headline: Headline, models: Titles, datasets: Titles
) -> Markup:
    """The tables, each with what it shows; `summary` is without salmons, and so are they."""
    shown = summary["model"].unique().to_list()
    layers, strata, forms = (found[name].filter(pl.col("model").is_in(shown)) for name in ("layers", "strata", "forms"))
    tables = {
        "deepest": deepest_layers(summary, headline),
        "auc": reference_auc(layers, headline),
        "text": text_alone(found["text"], headline),
        "forms": form_table(forms, headline),
        "distances": distance_table(layers, strata, headline),
        "accuracy": accuracy(found["examples"]),
        "questions": kept_questions(found["questions"]),
    }
    return render("numbers.html", tables={name: named(table, models, datasets) for name, table in tables.items()})


def deepest_layers(summary: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """One row per model, dataset and rule: Q, A and gap at the layer where Q is lowest."""
    keys = ["model", "dataset", "rule"]
    rows = summary.filter(
        pl.col("rule").is_in(["flip", "honest"]),
        **vars(headline),
        intervention="exact_question",
        labels="plotted",
        logits="measured",
    )
    question, answer, gap = (rows.filter(anchor=name) for name in ("question", "answer", "gap"))
    return (
        question.drop_nulls("low")  # groups of one example have no interval
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
            AUC_clean=rounded("auc_clean"),
            AUC_cut=rounded("auc_intervened"),
        )
        .rename({"interval": "95 % interval"})
    )


def rounded(column: str, decimals: int = 2) -> pl.Expr:
    """A column's numbers as text."""
    return pl.col(column).map_elements(f"{{:.{decimals}f}}".format, return_dtype=pl.String)


def _between(low: str, high: str, decimals: int) -> pl.Expr:
    return pl.struct(low=low, high=high).map_elements(
        lambda ends: between(ends["low"], ends["high"], decimals), return_dtype=pl.String
    )


def kept_questions(questions: pl.DataFrame) -> pl.DataFrame:
    """One row per dataset: rows kept, rows dropped, and why."""
    dropped = pl.col("verdict") != "kept"
    reason = pl.format("{} {}", "rows", "verdict").filter(dropped)
    return questions.group_by("dataset", maintain_order=True).agg(
        kept=pl.col("rows").filter(~dropped).sum(),
        dropped=pl.col("rows").filter(dropped).sum(),
        because=reason.str.join(", ").replace("", None),
    )


def accuracy(examples: pl.DataFrame) -> pl.DataFrame:
    """One row per model and dataset: how its answers were judged, and how many are analysed."""
    return examples.select(
        *("model", "dataset", "asked", "right", "wrong", "refused"),
        (100 * pl.col("right") / pl.col("asked")).alias("right, % of asked"),
        *("left_out_by_balance", "analysed"),
    )


def reference_auc(layers: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """One row per model and dataset: how well the probe of its reference layer ranks, clean and cut."""
    rows = layers.filter("is_reference").filter(**vars(headline))
    auc = pl.format("{} ({})", rounded("auc"), _between("auc_low", "auc_high", 2))
    keys = ["model", "dataset", "layer"]
    clean, cut, control = (
        rows.filter(intervention=name).select(*keys, auc.alias(f"AUC {state} (95 % interval)"), "calibration_error")
        for name, state in (("clean", "clean"), ("exact_question", "question cut"), ("random_question", "control"))
    )
    return (
        clean.join(cut.drop("calibration_error"), on=keys, how="left")
        .join(control.drop("calibration_error"), on=keys, how="left")
        .select(pl.exclude("calibration_error"), calibration_error=rounded("calibration_error"))
    )


def text_alone(text: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """One row per model and dataset: the AUC of every reader, and the probe's gain over the reader of all words."""
    keys = ["model", "dataset"]
    rows = text.filter(**vars(headline)).with_columns(pl.col("reader").str.replace_all("_", " "))
    gain = pl.format("{} ({})", rounded("gain"), _between("gain_low", "gain_high", 2))
    gains = rows.filter(reader="both words").select(*keys, gain.alias("gain over both words (95 % interval)"))
    areas = rows.with_columns(auc=rounded("auc")).pivot("reader", index=keys, values="auc", maintain_order=True)
    return areas.join(gains, on=keys, how="left", maintain_order="left")


def form_table(forms: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """One row per model, dataset and form of some size: how many of each group have it, and the honest gap."""
    keys = ["model", "dataset", "grouping", "form"]
    rows = forms.filter(pl.col("n") >= MIN_EXAMPLES, **vars(headline), rule="honest")
    recentred = rows.filter(logits="recentred").select(*keys, recentred_gap="gap")
    shares = {"share": "of all", "share_question": "of Q", "share_answer": "of A", "question_anchored": "that are Q"}
    titles = {EQUAL: "at equal form", COVERED: "the same, whatever their form"}
    return (
        rows.filter(logits="measured")
        .join(recentred, on=keys, how="left", maintain_order="left")
        .select(
            *("model", "dataset"),
            pl.col("grouping", "form").replace(titles).str.replace_all("_", " "),
            "n",
            *((100 * pl.col(name)).round().cast(pl.Int64).alias(f"{title}, %") for name, title in shares.items()),
            "gap",
            _between("gap_low", "gap_high", 1).alias("95 % interval"),
            "recentred_gap",
        )
    )


def distance_rows(layers: pl.DataFrame, strata: pl.DataFrame) -> pl.DataFrame:
    """One row per model, dataset and intervention: means over layers, from the headline's rows.

    How far cut states lie from clean ones, in distances of clean states, altogether and along the probe; and the honest
    gap of each third by distance, where it has one.
    """
    keys = ["model", "dataset", "intervention"]
    names = {"distance": "distance", "along_the_probe": "distance_along_probe"}
    place = ["model", "dataset", "layer"]
    clean = layers.filter(intervention="clean").select(*place, *names.values())
    cut = layers.filter(pl.col("intervention") != "clean").join(clean, on=place, suffix="_clean")
    ratios = cut.group_by(keys, maintain_order=True).agg(
        **{title: (pl.col(name) / pl.col(f"{name}_clean")).mean() for title, name in names.items()}
    )
    thirds = strata.filter(pl.col("stratum").is_in(DISTANCE), rule="honest", anchor="gap")
    gaps = thirds.group_by(keys).agg(
        **{third: pl.col("delta_p").filter(pl.col("low").is_not_null(), stratum=third).mean() for third in DISTANCE}
    )
    return ratios.join(gaps, on=keys, how="left", maintain_order="left")


def distance_table(layers: pl.DataFrame, strata: pl.DataFrame, headline: Headline) -> pl.DataFrame:
    """The distances with their interventions in words."""
    found = distance_rows(layers.filter(**vars(headline)), strata.filter(**vars(headline)))
    return found.with_columns(
        pl.col("intervention").map_elements(intervention_title, return_dtype=pl.String),
        *(rounded(name) for name in ("distance", "along_the_probe")),
    ).rename({third: f"gap, {third} third" for third in DISTANCE})


def provenance_section(provenance: Mapping, models: Titles, datasets: Titles, file: Link) -> Markup:
    """What made the run; `file` has all of it."""
    manifests = [_described(provenance["models"][name], provenance["computed"][name]) for name in models]
    origins = [{"dataset": title, "origin": _words(provenance["datasets"][name])} for name, title in datasets.items()]
    return render(
        "provenance.html",
        models=list(models.values()),
        properties={what: [manifest[what] for manifest in manifests] for what in manifests[0]},
        datasets=pl.DataFrame(origins),
        licences=licence_table(provenance.get("licences", {}), models, datasets),
        python=provenance["python"],
        libraries=" · ".join(f"{name} {version}" for name, version in sorted(provenance["libraries"].items())),
        settings=json.dumps(provenance["config"], indent=2, ensure_ascii=False),
        file=file,
    )


def licence_table(stated: Mapping, models: Titles, datasets: Titles) -> pl.DataFrame:
    """Whose licences a run touches; a record of before they were asked for has none."""
    whose = [("models", "weights of", models), ("datasets", "questions of", datasets)]
    rows = [
        {"what": f"{what} {title}", "licence": stated.get(kind, {}).get(name, NOT_STATED)}
        for kind, what, titles in whose
        for name, title in titles.items()
    ]
    return pl.DataFrame([*rows, {"what": "figures and numbers of this run", "licence": "yours"}])


def _described(manifest: Mapping, computed: list[dict]) -> dict[str, str]:
    """A model and what it was computed with."""
    shown = ("architecture", "parameters", "layers", "width", "stored_dtype", "weights", "revision")
    with_what = {"computed in": "dtype", "because": "dtype_because", "computed on": "device", "CPU threads": "threads"}
    return {
        **{key: f"{manifest[key]:,}" if key == "parameters" else str(manifest[key]) for key in shown},
        **{title: computed_with(computed, key) for title, key in with_what.items()},
        "source": _words(manifest["source"]),
    }


def computed_with(records: list[dict], key: str) -> str:
    """What a model was computed with; its jobs may have run on different machines."""
    return ", ".join(dict.fromkeys(str(record[key]) for record in records))


def _words(values: Mapping) -> str:
    """Keys and values of a small mapping, one after the other."""
    parts = (f"{key} {_words(value) if isinstance(value, Mapping) else value}" for key, value in values.items())
    return ", ".join(part for part, value in zip(parts, values.values(), strict=True) if value is not None)
