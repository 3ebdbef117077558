"""What survives: beside each model's gap, what else could explain it, one column per dataset."""

from collections.abc import Iterator
from itertools import product

import polars as pl
from markupsafe import Markup

from anchorscope.draw.titles import intervention_title
from anchorscope.draw.view import Tables
from anchorscope.extract.axes import CONTROLS, EXACT, Headline
from anchorscope.models.manifest import SALMON
from anchorscope.probe.label_errors import DRAWS, ERRORS, SHARE
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, distance_rows
from anchorscope.summarise.parts import DISTANCE, EQUAL
from anchorscope.summarise.wording import plain, signed_between, with_ends

READER_TITLES = {
    "best_layer": "best layer",
    "first_layer": "first layer",
    "question_words": "words of the question",
    "answer_words": "words of the answer",
    "both_words": "words of both",
    "answer_length": "length of the answer",
    "exact_length": "length of the exact answer",
}
GAPS = {  # rules and logits
    ("flip", "measured"): "published rule",
    ("honest", "measured"): "honest",
    ("honest", "recentred"): "honest, recentred",
    ("honest", "residual"): "honest, residual",
}
SAME_FORM = {  # groupings and forms
    ("question_form", EQUAL): "at equal form of the question",
    ("answer_form", EQUAL): "at equal form of the answer",
    ("answer_in_question", "no"): "without answers that stand in the question",
}
Cells = Iterator[tuple[str, str | None]]  # what is measured, and what it came to


def survives_section(tables: Tables, headline: Headline, models: Titles, datasets: Titles) -> Markup:
    """A table for each model, of all its datasets side by side; models and datasets by name, with their titles.

    From the tables text, layers, series, strata, forms and label_errors.
    """
    shown = {name: table.filter(**vars(headline)) for name, table in tables.items()}
    comparisons = [
        {
            "model": title,
            "rows": _side_by_side([_of_pair(shown, model, dataset) for dataset in datasets]),
            "label_errors": label_errors_sentence(shown["label_errors"].filter(model=model)),
        }
        for model, title in models.items()
    ]
    return render("survives.html", comparisons=comparisons, datasets=list(datasets.values()))


def _side_by_side(pairs: list[dict[str, dict[str, str | None]]]) -> dict[str, dict[str, list[str | None]]]:
    """By heading and what is measured, the cells of each dataset; without rows that have nothing for any of them."""
    return {
        heading: {
            what: [pair[heading].get(what) for pair in pairs]
            for what in dict.fromkeys(what for pair in pairs for what in pair[heading])
        }
        for heading in pairs[0]
    }


def _of_pair(tables: Tables, model: str, dataset: str) -> dict[str, dict[str, str | None]]:
    """Everything about one model on one dataset, by heading."""
    own, salmon = (
        {name: table.filter(model=name_of, dataset=dataset) for name, table in tables.items()}
        for name_of in (model, f"{model}{SALMON}")
    )
    return {
        "Who can tell right from hallucinated: AUC": dict(_ranking(own, salmon)),
        "The gap, mean over layers, with its 95 % interval": dict(_gaps(own, salmon)),
        "The honest gap in ΔP where forms of questions and answers cannot make it": dict(_same_form(own)),
        "The honest gap in ΔP where other words are cut": dict(_other_words(own)),
        "How far cut states lie from clean ones, in distances of clean states": dict(_lying(own)),
    }


def _ranking(own: Tables, salmon: Tables) -> Cells:
    """Probes, readers of text, random weights and shuffled labels."""
    areas = dict(own["text"].select("reader", "auc").iter_rows())
    yield from ((title, plain(areas[reader], 2)) for reader, title in READER_TITLES.items() if reader in areas)
    for twin in _reference(salmon["layers"]):
        yield "random weights, best layer", plain(twin["auc"], 2)
    for row in _reference(own["layers"]):
        yield "shuffled labels", plain(row["auc_shuffled"], 2)
        yield "selectivity: the probe's less that of shuffled labels", plain(row["selectivity"], 2)


def _reference(layers: pl.DataFrame) -> list[dict]:
    """The row of the clean probe at the reference layer, if there is one."""
    return layers.filter("is_reference", intervention="clean").to_dicts()


def _gaps(own: Tables, salmon: Tables) -> Cells:
    """Each gap in points of ΔP and in logits, and what one mechanism and random weights give."""
    for (rule, logits), title in GAPS.items():
        for row in _areas(own, EXACT, rule, logits):
            yield f"{title}, ΔP", with_ends(row, "area", 1)
            yield f"{title}, Δlogit", with_ends(row, "area_logit", 2)
            if rule == "honest" and row["area_null"] is not None:
                yield f"{title}: one mechanism, ΔP", with_ends(row, "area_null", 1)
    for twin in _areas(salmon, EXACT):
        yield "random weights, honest, ΔP", with_ends(twin, "area", 1)


def _same_form(own: Tables) -> Cells:
    """The honest gap where form cannot make it."""
    for ((grouping, form), title), logits in product(SAME_FORM.items(), ("measured", "recentred")):
        known = own["forms"].filter(pl.col("gap").is_not_null(), rule="honest", logits=logits)
        for row in known.filter(grouping=grouping, form=form).to_dicts():
            yield title if logits == "measured" else f"{title}, {logits}", with_ends(row, "gap", 1)


def _other_words(own: Tables) -> Cells:
    """The control, and every choice of words that was run."""
    return (
        (intervention_title(name), with_ends(row, "area", 1))
        for name in (CONTROLS[EXACT], *(knockout for knockout in CONTROLS if knockout != EXACT))
        for row in _areas(own, name)
    )


def _areas(tables: Tables, intervention: str, rule: str = "honest", logits: str = "measured") -> list[dict]:
    """The row of a gap's whole curve, if it has an area."""
    wanted = {"intervention": intervention, "rule": rule, "labels": "plotted", "logits": logits, "anchor": "gap"}
    return tables["series"].filter(pl.col("area").is_not_null(), **wanted).to_dicts()


def _lying(own: Tables) -> Cells:
    """Distances under the knockout and its control, and the honest gap in thirds by distance."""
    found = {row["intervention"]: row for row in distance_rows(own["layers"], own["strata"]).to_dicts()}
    shown = {intervention_title(name): found[name] for name in (EXACT, CONTROLS[EXACT]) if name in found}
    yield from ((title, plain(row["distance"], 2)) for title, row in shown.items())
    yield from ((f"{title}, along the probe", plain(row["along_the_probe"], 2)) for title, row in shown.items())
    for third in DISTANCE:
        if EXACT in found and found[EXACT][third] is not None:
            yield f"honest gap in ΔP, {third} third", plain(found[EXACT][third], 1)


def label_errors_sentence(rows: pl.DataFrame) -> str:
    """How far one model's AUC and honest gap would move, or nothing where that was not measured."""
    if rows.is_empty():
        return ""
    random, missed, believed = (
        f"{_range(some['auc_move'], 3)} and {_range(some['gap_move'], 1)} points"
        for some in (rows.filter(errors=errors) for errors in ERRORS)
    )
    return (
        f"If {100 * SHARE:.0f} % of the labels were wrong, at random, the AUC of the best layer and the honest gap "
        f"would move by {random}. If all of these were right answers called hallucinated, they would move by {missed}; "
        f"if all were hallucinated answers called right, by {believed}. Each is the range over datasets and {DRAWS} "
        "draws of the wrong labels."
    )


def _range(moves: pl.Series, decimals: int) -> str:
    """The lowest and the highest of some moves."""
    known = moves.drop_nulls().to_list()
    return signed_between(min(known), max(known), decimals) if known else "–"
