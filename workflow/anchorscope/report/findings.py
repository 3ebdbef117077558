"""The sentences that the report's sections open with: what each has found, of each model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from anchorscope.detect.compare import YES, verdict
from anchorscope.detect.methods import METHOD_TITLES, PROBE
from anchorscope.draw.view import Tables
from anchorscope.extract.axes import EXACT, Headline
from anchorscope.probe.anchor_rules import HONEST
from anchorscope.report.claims import whole_rows
from anchorscope.report.examples import PairExamples
from anchorscope.report.tables import Titles, computed_with, deepest_layers
from anchorscope.summarise.claims import AGAINST, NOT_APPLICABLE
from anchorscope.summarise.findings import WHY_NOT_PROBED
from anchorscope.summarise.wording import between, plain, signed, with_interval


def honest_gaps(numbers: Mapping[str, Mapping], bottom_line: Titles, models: Titles) -> list[str]:
    """The gap that another prompt measures; `numbers` and `bottom_line` are those of claims.json."""

    def said(own: Mapping, otherwise: str) -> str:
        if not own["honest"] or own["honest"][0] is None:
            return otherwise
        honest, recentred = (
            with_interval(value, low, high, number=signed) for value, low, high in (own["honest"], own["recentred"])
        )
        zero = "" if own["honest"][2] < 0 else ", which cannot be told from zero"
        push = "" if recentred is None else f"; without the push, {recentred}"
        return f"when another prompt measures it, the gap is {honest} points{zero}{push}."

    return [f"{models[name]}: {said(own, bottom_line[name])}" for name, own in numbers.items() if name in models]


def verdict_counts(judged: Sequence[Mapping], models: Titles) -> list[str]:
    """How many claims have each verdict, on all datasets, as measured and by the honest rule."""
    rows = [row for row in judged if row["logits"] == "measured" and row["rule"] in (HONEST, None)]
    found = []
    for model, title in models.items():
        own = [row for row in whole_rows(rows) if row["model"].split(AGAINST)[0] == model]
        counts = Counter(row["verdict"] for row in own if row["verdict"] != NOT_APPLICABLE)
        said = (
            f"{counts['supported']} of {counts.total()} claims supported, {counts['contradicted']} contradicted, "
            f"{counts['undecided']} undecided."
        )
        found.append(f"{title}: {said if own else WHY_NOT_PROBED}")
    return found


def survivals(tables: Tables, one_mechanism: Sequence[Mapping], headline: Headline, models: Titles) -> list[str]:
    """On how many datasets the probe and the honest gap are more than what else could explain them."""
    text = tables["text"].filter(**vars(headline), reader="both_words")
    wanted = {"rule": HONEST, "labels": "plotted", "logits": "recentred", "anchor": "gap", "intervention": EXACT}
    pushed = tables["series"].filter(**vars(headline), **wanted).drop_nulls("area")
    found = []
    for model, title in models.items():
        beyond = [row["beyond"] for row in one_mechanism if (row["model"], row["logits"]) == (model, "measured")]
        asked = {
            "the probe tells more than the words": text.filter(model=model)["gain_low"] > 0,
            "the honest gap stays below zero without the push": pushed.filter(model=model)["area_high"] < 0,
            "the honest gap is beyond one mechanism": pl.Series(beyond, dtype=pl.Boolean),
        }
        said = [f"{what} on {known.sum()} of {len(known)} datasets" for what, known in asked.items() if len(known)]
        found.append(f"{title}, by 95 % intervals: {'; '.join(said)}." if said else f"{title}: {WHY_NOT_PROBED}")
    return found


def deepest_falls(summary: pl.DataFrame, headline: Headline, models: Titles, datasets: Titles) -> list[str]:
    """Where confidence falls most under the honest rule."""
    lowest = deepest_layers(summary, headline).filter(rule=HONEST).sort("ΔP_Q")

    def said(rows: list[dict]) -> str:
        if not rows:
            return WHY_NOT_PROBED
        (row, *_) = rows
        if row["ΔP_Q"] >= 0:
            return "by the honest rule, ΔP is below zero in no layer."
        place, question, answer = datasets[row["dataset"]], signed(row["ΔP_Q"]), signed(row["ΔP_A"])
        return (
            f"by the honest rule, ΔP is lowest on {place}, at layer {row['layer']}: {question} for Question-Anchored "
            f"examples and {answer} for the others."
        )

    return [f"{title}: {said(lowest.filter(model=model).to_dicts())}" for model, title in models.items()]


def anchor_counts(pairs: Iterable[PairExamples]) -> list[str]:
    """How many examples of each model are Question-Anchored."""
    counts: dict[str, Counter] = {}
    for pair in pairs:
        own = counts.setdefault(pair.model, Counter())
        own += Counter({anchor: int(str(mean["n"])) for anchor, mean in pair.means.items()})
    return [
        f"{title}: {own['question']:,} of {own.total():,} examples are Question-Anchored."
        if own
        else f"{title}: {WHY_NOT_PROBED}"
        for title, own in counts.items()
    ]


def probe_areas(layers: pl.DataFrame, headline: Headline, models: Titles) -> list[str]:
    """How well the probes of the best layers rank, clean and with the question cut, over datasets."""
    rows = layers.filter("is_reference", **vars(headline))

    def said(own: pl.DataFrame) -> str:
        if own.is_empty():
            return WHY_NOT_PROBED
        clean, cut = (_span(own.filter(intervention=name)["auc"].to_list()) for name in ("clean", EXACT))
        return f"the best layer's probe has an AUC of {clean}, and of {cut} with the question cut."

    return [f"{title}: {said(rows.filter(model=model))}" for model, title in models.items()]


def _span(values: Sequence[float]) -> str:
    """The lowest and the highest of some numbers, or the one that they are."""
    low, high = plain(min(values), 2), plain(max(values), 2)
    return low if low == high else between(min(values), max(values), 2)


def best_methods(detection: pl.DataFrame, models: Titles) -> list[str]:
    """Which method of detection is best on average over datasets, against the plain probe."""
    found = []
    for model, title in models.items():
        own = detection.filter(model=model)
        if own.is_empty():
            continue
        everywhere = pl.col("dataset").n_unique() == own["dataset"].n_unique()
        means = own.group_by("method", maintain_order=True).agg(pl.col("auc").mean(), everywhere=everywhere)
        ranked = means.filter("everywhere").sort("auc", descending=True, maintain_order=True)
        best, probe = ranked["method"][0], ranked.filter(method=PROBE)["auc"][0]
        if best == PROBE:
            found.append(f"{title}: no method has a better mean AUC than the plain probe, {probe:.2f}.")
            continue
        gains = own.filter(method=best).select("gain_low", "gain_high").iter_rows()
        sure = [verdict(low, high) == YES for low, high in gains]
        found.append(
            f"{title}: best on average is “{METHOD_TITLES[best]}”, with an AUC of {ranked['auc'][0]:.2f} against the "
            f"plain probe's {probe:.2f}; that is more than chance explains on {sum(sure)} of {len(sure)} datasets."
        )
    return found


def answer_counts(examples: pl.DataFrame, models: Titles) -> list[str]:
    """What was asked and answered."""
    totals = examples.group_by("model").agg(pl.col("asked", "right", "wrong", "refused", "analysed").sum())
    return [
        f"{models[row['model']]}: of {row['asked']:,} questions, {row['right']:,} were answered rightly, "
        f"{row['wrong']:,} wrongly and {row['refused']:,} not at all; {row['analysed']:,} answers are analysed."
        for row in sorted(totals.to_dicts(), key=lambda row: list(models).index(row["model"]))
    ]


def machines(provenance: Mapping, models: Titles) -> list[str]:
    """What the models were computed in and on."""
    return [
        f"{title}: computed in {computed_with(provenance['computed'][name], 'dtype')} on "
        f"{computed_with(provenance['computed'][name], 'device')}."
        for name, title in models.items()
    ]
