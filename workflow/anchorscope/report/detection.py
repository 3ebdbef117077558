"""Detection on the report: which method is best, whether pathways help, what carries over, and all numbers."""

from collections.abc import Sequence

import polars as pl
from markupsafe import Markup

from anchorscope.detect.compare import NEITHER, NO, YES, mean_transfer, overall, verdict
from anchorscope.detect.methods import LEARNT, METHOD_TITLES, METHODS, OTHERS, PROBE
from anchorscope.draw.view import Tables
from anchorscope.report.figures import Link, Picture
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, named, rounded
from anchorscope.summarise.wording import with_ends

MARKS = {YES: " ▲", NO: " ▼", NEITHER: ""}
GAIN_CELL = pl.struct("gain", "gain_low", "gain_high").map_elements(
    lambda row: with_ends(row, "gain", 3), return_dtype=pl.String
)  # with its interval, as text
BALANCED = 0.02  # how far from one half the share of hallucinated answers may be


def detection_section(
    tables: Tables,
    pictures: Sequence[Picture],
    models: Titles,
    datasets: Titles,
    *,
    files: Sequence[Link],
    detectors: Sequence[Link],
) -> Markup:
    """The section on detection; `tables` are those of `compare_methods`, models and datasets by name, with titles."""
    found = []
    for model in models:
        own = {name: table.filter(model=model) for name, table in tables.items()}
        if len(own["detection"]):
            found.append(
                {"model": models[model], "sentences": sentences(own, datasets), "areas": area_rows(own, datasets)}
            )
    return render(
        "detection.html",
        balance=balance(tables["detection"]),
        found=found,
        pictures=pictures,
        numbers=named(detection_numbers(tables["detection"]), models, datasets),
        pathways=named(pathways_table(tables["pathways"]), models, datasets),
        carried=named(carried_table(tables["transfer"]), models, datasets),
        uncarried=_why_nothing(tables["transfer"]),
        files=files,
        detectors=detectors,
    )


def balance(detection: pl.DataFrame) -> str:
    """A sentence on how many of the answers are hallucinated, which every risk is to be compared with."""
    shares = detection["hallucinated_share"].to_list()
    if max(abs(share - 0.5) for share in shares) <= BALANCED:
        return "Half of the answers are hallucinated, as the examples are balanced."
    return f"Between {100 * min(shares):.0f} and {100 * max(shares):.0f} % of the answers are hallucinated."


def sentences(own: Tables, datasets: Titles) -> list[str]:
    """What was found of a model, by its own tables: the best method, pathways, and what carries over."""
    best = [
        f"{title}: {_best(own['detection'].filter(dataset=name))}"
        for name, title in datasets.items()
        if name in set(own["detection"]["dataset"])
    ]
    return [*best, _pathways(own["pathways"], datasets), _carries(own["transfer"], datasets)]


def _best(rows: pl.DataFrame) -> str:
    """Which method ranks best on a dataset, and whether it is really better than the probe."""
    row = rows.sort("auc", descending=True, maintain_order=True).row(0, named=True)
    area = f"{METHOD_TITLES[row['method']]} ranks best, with an AUC of {with_ends(row, 'auc', 2)}"
    if row["method"] == PROBE:
        return f"{area}."
    sure = verdict(row["gain_low"], row["gain_high"]) == YES
    beyond = "more than chance explains" if sure else "which may be chance"
    return f"{area}; {with_ends(row, 'gain', 2)} above the plain probe, {beyond}."


def _pathways(table: pl.DataFrame, datasets: Titles) -> str:
    """Whether each method that knows pathways beats all of its rivals, dataset by dataset."""
    parts = []
    for method in (name for name, method in METHODS.items() if method.rivals):
        said = {
            title: overall(table.filter(method=method, dataset=name)["helps"].to_list())
            for name, title in datasets.items()
            if name in set(table["dataset"])
        }
        by_verdict = {word: [title for title, one in said.items() if one == word] for word in (YES, NO, NEITHER)}
        everywhere = f"all {len(said)} datasets" if len(said) > 1 else "".join(said)
        told = "; ".join(
            f"{word} on {', '.join(titles) if len(titles) < len(said) else everywhere}"
            for word, titles in by_verdict.items()
            if titles
        )
        parts.append(f"{METHOD_TITLES[method]}: {told}")
    return f"Does it help to know pathways? {'. '.join(parts)}."


def _carries(transfer: pl.DataFrame, datasets: Titles) -> str:
    """How much of the probe's AUC is left on other datasets, and which trained method does best there."""
    carried = mean_transfer(transfer)
    if carried.is_empty():
        return _why_nothing(transfer)
    (probe,) = carried.filter(method=PROBE).to_dicts()
    learnt = carried.filter(pl.col("method").is_in(LEARNT))
    best = learnt.sort("elsewhere", descending=True, maintain_order=True).row(0, named=True)
    joint = "" if probe["others"] is None else f", and {probe['others']:.2f} after training on all others"
    return (
        f"Does it carry over? The plain probe's mean AUC is {probe['home']:.2f} on the dataset that it was trained on, "
        f"{probe['elsewhere']:.2f} on another{joint}. "
        f"Of the trained methods, {METHOD_TITLES[best['method']]} does best on another, with {best['elsewhere']:.2f}."
        f"{_left_out(transfer, datasets)}"
    )


def _why_nothing(transfer: pl.DataFrame) -> str:
    """Why nothing carries over."""
    if transfer.filter(pl.col("trained_on") != pl.col("dataset")).is_empty():
        return "There is one dataset, so there is nothing to carry over."
    return (
        "The datasets share questions or subjects, and too few other examples are left to learn from: nothing can be "
        "carried over."
    )


def _left_out(transfer: pl.DataFrame, datasets: Titles) -> str:
    """How many examples were left out of training because the tested dataset has their question or subject."""
    pairs = transfer.filter(pl.col("left_out") > 0, method=PROBE)
    if pairs.is_empty():
        return ""
    titles = {**datasets, OTHERS: "all others"}
    untaught = [
        f"{titles[one]} for {titles[other]}"
        for one, other in pairs.filter(pl.col("auc").is_null()).select("trained_on", "dataset").iter_rows()
    ]
    too_few = f" Too few were left to learn from: {', '.join(untaught)}." if untaught else ""
    return (
        f" Up to {max(pairs['left_out'])} examples were left out of training, because the tested dataset has their "
        f"question or their subject.{too_few}"
    )


def area_rows(own: Tables, datasets: Titles) -> pl.DataFrame:
    """One row per method of a model, one column per dataset: the AUC, marked where it differs from the probe's."""
    rows = own["detection"]
    texts = [
        f"{with_ends(row, 'auc', 2)}{'' if row['gain'] is None else MARKS[verdict(row['gain_low'], row['gain_high'])]}"
        for row in rows.to_dicts()
    ]
    told = rows.with_columns(pl.col("method").replace(METHOD_TITLES), text=pl.Series(texts))
    wide = told.pivot("dataset", index="method", values="text", maintain_order=True)
    return wide.select(
        "method", *(pl.col(name).alias(title) for name, title in datasets.items() if name in wide.columns)
    )


def detection_numbers(detection: pl.DataFrame) -> pl.DataFrame:
    """Everything else about each method, as text."""
    published = (
        []
        if detection["published"].null_count() == len(detection)
        else [rounded("published", 3).alias("published AUC")]
    )
    return detection.select(
        "model",
        "dataset",
        pl.col("method").replace(METHOD_TITLES),
        "n",
        GAIN_CELL.alias("gain over the plain probe"),
        rounded("calibration_error", 3).alias("calibration error"),
        rounded("aurc", 3).alias("area under risk by coverage"),
        rounded("right_at_50", 3).alias("right among the surer half"),
        rounded("right_at_80", 3).alias("right among the surer 80 %"),
        *published,
    )


def pathways_table(table: pl.DataFrame) -> pl.DataFrame:
    """Each method that knows pathways against each rival that does not, as text."""
    return table.select(
        "model",
        "dataset",
        pl.col("method", "against").replace(METHOD_TITLES),
        GAIN_CELL.alias("gain"),
        "helps",
    )


def carried_table(transfer: pl.DataFrame) -> pl.DataFrame:
    """How well each trained method does at home, elsewhere, and after training on all other datasets, as text."""
    learnt = mean_transfer(transfer).filter(pl.col("method").is_in(LEARNT))
    return learnt.select(
        "model",
        pl.col("method").replace(METHOD_TITLES),
        rounded("home", 3).alias("at home"),
        rounded("elsewhere", 3).alias("on another dataset"),
        rounded("others", 3).alias("trained on all others"),
        rounded("drop", 3).alias("drop from home to another"),
    )
