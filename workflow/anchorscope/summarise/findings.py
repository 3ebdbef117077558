"""What a run found: the verdicts on the claims, what to read beside them, and both in a few sentences per model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

import numpy as np
import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.probe.anchor_rules import HONEST
from anchorscope.probe.examples import Pair
from anchorscope.summarise.claims import (
    CLAIMS,
    POINTS_PER_LOGIT,
    Findings,
    JudgedClaim,
    Run,
    judge_claims,
    larger_neighbours,
    reads_truth,
)
from anchorscope.summarise.curves import QUANTITIES, Uncertain
from anchorscope.summarise.grouping import LOGITS
from anchorscope.summarise.tables import Coverage
from anchorscope.summarise.verdict_on_kinds import (
    ALL_EXAMPLES,
    BY_DEGREES,
    COMPARED,
    ONE_MECHANISM,
    TWO_KINDS,
    UNDECIDED,
    judge,
    judge_accounts,
)
from anchorscope.summarise.wording import between, notes, signed, unprobed
from anchorscope.text.forms import HOW_MANY, WHICH_WHAT, YES_OR_NO

WHY_NOT_PROBED = "not probed, because its answers are too few or too one-sided."
FEW_EXAMPLES = 100  # examples of a dataset below which little can be said
MOST, LITTLE = 0.5, 0.25  # a form that makes up so much of one group, and so little of the other
NAMED = 4  # datasets that are named one by one; more are counted
VERDICT_SENTENCES = {
    TWO_KINDS: "Two kinds of examples are seen",
    BY_DEGREES: "Examples differ by degrees, not by kind,",
    ONE_MECHANISM: "One mechanism is enough",
    UNDECIDED: "Whether there are two kinds is undecided",
}
FORM_WORDS = {YES_OR_NO: "yes-or-no", WHICH_WHAT: "which-or-what", HOW_MANY: "how-many"}  # the others are words
QUALITIES = {
    "question_form": "the form of the question",
    "answer_form": "the form of the answer",
    "property": "the property asked about",
    "answer_in_question": "whether the answer stands in the question",
    "hallucinated": "whether the answer is hallucinated",
    "popularity": "popularity",
    "question_length": "the length of the question",
    "answer_length": "the length of the answer",
    "clean_logit": "the clean logit",
    "clean_logit_size": "the size of the clean logit",
}


@dataclass(frozen=True)
class Comparison:
    """What the numbers of a run are compared with."""

    families: list[list[str]]  # models that are shown side by side, the smaller one left
    layouts: dict[str, str]  # by dataset, whose questions it has
    published: dict  # landmarks of the published figures, by model, and their tolerance


def find(
    tables: Mapping[str, pl.DataFrame],
    resampled: Mapping[Pair, str],
    headline: Headline,
    coverage: Coverage,
    comparison: Comparison,
) -> Findings:
    """Judge the claims by the tables of all models and datasets; `resampled` has the files of the probed pairs."""
    summary, series, layers = (tables[name].filter(**vars(headline)) for name in ("summary", "series", "layers"))
    runs: dict[str, list[Run]] = {quantity: [] for quantity in QUANTITIES}
    for (model, dataset), path in resampled.items():
        own = {"model": model, "dataset": dataset}
        curves, quality, drawn = summary.filter(**own), layers.filter(**own), read_frame(path)
        for quantity, some in runs.items():
            some.append(read_run(model, dataset, curves, drawn, quality, quantity=quantity))
    parameters = {name: manifest["parameters"] for name, manifest in coverage.models.items()}
    claims = judge_claims(runs, larger_neighbours(comparison.families, parameters))
    names = [{name: name for name in some} for some in zip(*coverage.pairs, strict=True)]
    kinds = judge_kinds(tables["accounts"], tables["told_apart"], list(coverage.models))
    return Findings(
        statements={claim.number: claim.statement for claim in CLAIMS.values()},
        bottom_line={
            model: bottom_line(model, claims, kinds, series=series, forms=tables["forms"]) for model in coverage.models
        },
        numbers={
            model: headline_numbers(model, claims, kinds, series=series, forms=tables["forms"])
            for model in coverage.models
        },
        claims=claims,
        one_mechanism=beside_null(series, runs["delta_p"]),
        kinds=kinds,
        landmarks=published_beside_measured(comparison, summary, coverage.models),
        weights={name: manifest["weights"] for name, manifest in coverage.models.items()},
        note="\n".join(filter(None, [*notes(tables["summary"], *names), unprobed(coverage.metadata(), *names)])),
    )


def read_run(
    model: str,
    dataset: str,
    summary: pl.DataFrame,
    resampled: pl.DataFrame,
    layers: pl.DataFrame,
    quantity: str,
) -> Run:
    """From the tables of one model on one dataset; `summary` and `layers` have the headline's rows only."""

    def curve(anchor: str, intervention: str, logits: str = "measured") -> Uncertain:
        wanted = {"anchor": anchor, "intervention": intervention, "logits": logits}
        rows = summary.filter(rule=HONEST, labels="plotted", **wanted).sort("layer")
        mean = rows[quantity].cast(pl.Float64).to_numpy().astype(np.float64)
        drawn = resampled.filter(**wanted).sort("draw")[quantity].to_numpy().astype(np.float64)
        return Uncertain(mean, drawn.reshape(-1, len(mean)))

    return Run(
        model=model,
        dataset=dataset,
        question=curve("question", "exact_question"),
        answer=curve("answer", "exact_question"),
        gaps={logits: curve("gap", "exact_question", logits) for logits in LOGITS},
        control=curve("all", "random_question"),
        reads_truth=reads_truth(layers),
        bounds=1.0 if quantity == "delta_p" else 1 / POINTS_PER_LOGIT,
    )


def beside_null(series: pl.DataFrame, runs: list[Run]) -> list[dict]:
    """The headline's gap beside what one mechanism would give, as means over layers: one row per kind of logits.

    `beyond` is None where the probe reads nothing.
    """
    read = pl.DataFrame(
        [(run.model, run.dataset, run.reads_truth) for run in runs],
        schema={"model": pl.String, "dataset": pl.String, "reads_truth": pl.Boolean},
        orient="row",
    )
    return (
        series.filter(rule=HONEST, labels="plotted", anchor="gap", intervention="exact_question")
        .drop_nulls(["area", "area_null"])
        .select(
            "model",
            "dataset",
            "logits",
            *(f"{name}{end}" for name in ("area", "area_null") for end in ("", "_low", "_high")),
        )
        .join(read, on=["model", "dataset"], maintain_order="left")
        .with_columns(beyond=pl.when("reads_truth").then(pl.col("area_high") < pl.col("area_null_low")))
        .drop("reads_truth")
        .to_dicts()
    )


def judge_kinds(accounts: pl.DataFrame, told_apart: pl.DataFrame, models: Sequence[str]) -> list[dict]:
    """One row per model and dataset: the verdict on kinds, what it rests on, and what tells two kinds apart."""
    gains = [f"{gain}{end}" for gain in COMPARED for end in ("", "_error", "_low", "_high")]
    columns = ["model", "dataset", "among", "n", *gains, "correlation", "share_lost"]
    overall = accounts.filter(pl.col("layer").is_null(), pl.col("model").is_in(models)).select(columns)
    verdicts, found = judge_accounts(accounts), []
    for row in overall.filter(among=ALL_EXAMPLES).to_dicts():
        own = {"model": row["model"], "dataset": row["dataset"]}
        verdict = verdicts[row["model"], row["dataset"]]
        seen = verdict.verdict == TWO_KINDS
        parts = overall.filter(pl.col("among") != ALL_EXAMPLES, **own).to_dicts() if seen else []
        within = [
            {"among": part["among"], "n": part["n"], **asdict(judge(part, verdicts=len(parts)))} for part in parts
        ]
        told = (
            told_apart.filter(**own).select("quality", "value", "n", "^(share_lost|auc).*$").to_dicts() if seen else []
        )
        found.append({**row, **asdict(verdict), "within": within, "told_apart": told})
    return found


def published_beside_measured(comparison: Comparison, summary: pl.DataFrame, models: Mapping[str, dict]) -> list[dict]:
    """One row per landmark of each trained model of this run that the published figures show."""
    published, rows = comparison.published, []
    asked = asked_as_published(summary, comparison.layouts)
    for name, manifest in models.items():
        flip = asked.filter(model=name, rule="flip", logits="measured", intervention="exact_question")
        rows += [
            {"model": name, **compare_landmark(landmark, published["tolerance"], flip=flip, layouts=comparison.layouts)}
            for landmark in published["models"].get(manifest["source"].get("hub"), [])
        ]
    return rows


def asked_as_published(rows: pl.DataFrame, layouts: Mapping[str, str]) -> pl.DataFrame:
    """The rows of datasets with published questions: neither bundled ones nor a user's own."""
    wanted = [name for name, layout in layouts.items() if layout != "own"]
    return rows.filter(pl.col("dataset").is_in(wanted), pl.col("source") != "bundled")


def at_landmark(landmark: dict, flip: pl.DataFrame, layouts: Mapping[str, str]) -> pl.DataFrame:
    """The rows of a model that a landmark is about: those of its layers, or the deepest one on its dataset.

    `flip` holds the model's headline summary under that rule; `layouts` says whose questions a dataset has.
    """
    rows = flip.filter(anchor=landmark["anchor"]).drop_nulls("delta_p")
    if "deepest" not in landmark:
        return rows.filter(pl.col("layer").is_between(*landmark["layers"]))
    wanted = [name for name, layout in layouts.items() if layout == landmark["deepest"]]
    return rows.filter(pl.col("dataset").is_in(wanted)).sort("delta_p").head(1)


def compare_landmark(landmark: dict, tolerance: float, flip: pl.DataFrame, layouts: Mapping[str, str]) -> dict:
    """A landmark of a model: published and measured range over the datasets, and whether they agree."""
    low, high = landmark["published"]
    published = {"landmark": landmark["name"], "published_low": low, "published_high": high}
    rows = at_landmark(landmark, flip, layouts)
    if rows.is_empty():
        return published | {"measured_low": None, "measured_high": None, "layers": None, "agrees": None}
    values, layers = rows["delta_p"].to_list(), rows["layer"].to_list()
    near = low - tolerance <= min(values) and max(values) <= high + tolerance
    inside = rows["layer"].is_between(*landmark["layers"]).any()
    return published | {
        "measured_low": min(values),
        "measured_high": max(values),
        "layers": f"{min(layers)}–{max(layers)}",
        "agrees": near and inside,
    }


@dataclass(frozen=True)
class _Gaps:
    """A model's gap, averaged over layers and datasets: under the published rule, honest, and without the push."""

    published: float | None
    honest: JudgedClaim
    recentred: JudgedClaim
    datasets: list[str]  # over which it was averaged


def _gaps(model: str, claims: Sequence[JudgedClaim], series: pl.DataFrame) -> _Gaps | None:
    """The gaps of a model; None where nothing was probed. `series` has the headline's rows."""
    rows = [row for row in claims if (row.claim, row.model) == (CLAIMS["below"].number, model)]
    if not rows:
        return None
    whole = None if any(row.dataset is None for row in rows) else rows[0].dataset  # with one dataset, it is the whole
    honest, recentred = (
        next(row for row in rows if (row.dataset, row.logits) == (whole, logits))
        for logits in ("measured", "recentred")
    )
    judged = list(dict.fromkeys(row.dataset for row in rows if row.dataset is not None and row.effect is not None))
    wanted = {"rule": "flip", "logits": "measured", "anchor": "gap", "intervention": "exact_question", "model": model}
    found = series.filter(pl.col("dataset").is_in(judged), **wanted)["area"].drop_nulls().to_list()
    return _Gaps(fmean(found) if found else None, honest, recentred, judged)


def headline_numbers(
    model: str, claims: Sequence[JudgedClaim], kinds: Sequence[dict], *, series: pl.DataFrame, forms: pl.DataFrame
) -> dict[str, object]:
    """What a page about a model begins with: three gaps, the datasets of each verdict on kinds, and warnings."""
    gaps = _gaps(model, claims, series)
    own = [row for row in kinds if row["model"] == model]
    return {
        "published": gaps and gaps.published,
        "honest": [gaps.honest.effect, gaps.honest.low, gaps.honest.high] if gaps else None,
        "recentred": [gaps.recentred.effect, gaps.recentred.low, gaps.recentred.high] if gaps else None,
        "kinds": {
            verdict: [row["dataset"] for row in own if row["verdict"] == verdict]
            for verdict in dict.fromkeys(row["verdict"] for row in own)
        },
        "examples": sum(row["n"] for row in own),
        "warnings": list(filter(None, [*_little_and_forms(own, forms.filter(model=model)), _control(model, claims)])),
    }


def bottom_line(
    model: str, claims: Sequence[JudgedClaim], kinds: Sequence[dict], *, series: pl.DataFrame, forms: pl.DataFrame
) -> str:
    """The gap as published, what is left of it, and the verdict on kinds; first, whether the groups are forms.

    Names of datasets stand between backticks, where a page puts their titles.
    `series` has the headline's rows, `kinds` is what `judge_kinds` returns.
    """
    gaps = _gaps(model, claims, series)
    if gaps is None:
        return WHY_NOT_PROBED
    honest, recentred, judged = gaps.honest, gaps.recentred, gaps.datasets
    if honest.effect is None:
        return f"nothing can be said, because {honest.because}."
    own = [row for row in kinds if row["model"] == model]
    datasets = f" and {len(judged)} datasets" if len(judged) > 1 else ""
    sentences = [
        *_little_and_forms(own, forms.filter(model=model)),
        f"Of {sum(row['n'] for row in own):,} examples," if own else "Here,",
        f"averaged over layers{datasets}, the gap between Question- and Answer-Anchored examples "
        f"{_published(gaps.published)} as published (this model under the published rule, not the paper's "
        f"numbers), {_effect(honest)} when one prompt labels and another measures, and {_effect(recentred)} without "
        "the push, the shift that the knockout gives to every example alike.",
        _control(model, claims),
        *_verdicts(own),
    ]
    text = " ".join(filter(None, sentences))
    return text[0].lower() + text[1:]


def _little_and_forms(own: Sequence[dict], forms: pl.DataFrame) -> Iterator[str]:
    """What to know before a model's gap is read: few examples, and groups that are forms.

    Groups are forms where one form makes up most of one group and little of the other, under the honest rule.
    """
    few = [row for row in own if row["n"] < FEW_EXAMPLES]
    if few:
        yield f"Little can be said {_on(few)}: fewer than {FEW_EXAMPLES} examples."
    rows = forms.filter(rule=HONEST, logits="measured", grouping="question_form")
    for first, second, name in (("question", "answer", "Question"), ("answer", "question", "Answer")):
        for row in rows.drop_nulls(["share_question", "share_answer"]).iter_rows(named=True):
            most, little = row[f"share_{first}"], row[f"share_{second}"]
            if most >= MOST and little <= LITTLE:
                yield (
                    f"On `{row['dataset']}` the groups are largely forms of questions: {_asked(row['form'])} questions "
                    f"are {100 * most:.0f} % of the {name}-Anchored examples and {100 * little:.0f} % of the others."
                )


def _asked(form: str) -> str:
    """A form of questions as an adjective; any other value as it is."""
    return FORM_WORDS.get(form, form)


def _published(gap: float | None) -> str:
    return "has no value" if gap is None else f"is {signed(gap)} points"


def _effect(claim: JudgedClaim) -> str:
    if claim.effect is None:
        return f"unknown ({claim.because})"
    return f"{signed(claim.effect)} (95 % interval {between(claim.low, claim.high)})"


def _control(model: str, claims: Sequence[JudgedClaim]) -> str:
    """Where cutting as many other words moves the probe, too."""
    rows = [row for row in claims if (row.claim, row.model) == (CLAIMS["control"].number, model)]
    moved = [
        row for row in rows if row.verdict == "contradicted" and row.effect is not None and row.dataset is not None
    ]
    if not moved:
        return ""
    each = ", ".join(f"`{row.dataset}` ({signed(row.effect or 0.0)})" for row in moved)
    return f"Cutting as many other words of the question moves the probe, too, on {each}."


def _verdicts(own: Sequence[dict]) -> Iterator[str]:
    """Each verdict with the datasets that it is reached on, and what so many examples could not have shown."""
    for verdict, words in VERDICT_SENTENCES.items():
        rows = [row for row in own if row["verdict"] == verdict]
        if rows:
            told = _told(rows) if verdict == TWO_KINDS else ()
            yield f"{'; '.join([f'{words} {_on(rows)}', *told])}."
    others = [row for row in own if row["verdict"] != TWO_KINDS]
    if others:
        shares = [row["could_see_share"] for row in others]
        missed = "even where half" if None in shares else f"where fewer than {100 * max(shares):.0f} %"
        yield (
            f"There, kinds as far apart as on HotpotQA could have been missed {missed} of the examples lose their "
            "evidence."
        )


def _on(rows: Sequence[dict]) -> str:
    """The datasets of some rows, each with its number of examples."""
    if len(rows) <= NAMED:
        named = [f"`{row['dataset']}` ({row['n']:,} examples)" for row in rows]
        return f"on {' and '.join([', '.join(named[:-1]), named[-1]] if len(named) > 1 else named)}"
    sizes = [row["n"] for row in rows]
    return f"on {len(rows)} datasets of {min(sizes):,} to {max(sizes):,} examples"


def _told(rows: Sequence[dict]) -> Iterator[str]:
    """What tells the kinds apart best, and whether they remain within forms; nothing where neither is known."""
    for row in rows:
        remain = [part["among"].replace("_", " ") for part in row["within"] if part["verdict"] == TWO_KINDS]
        again = f"seen again within {' and '.join(remain)}" if remain else "seen within none of its larger forms"
        found = list(filter(None, [_best_teller(row["told_apart"]), again if row["within"] else None]))
        if found:
            yield (f"on `{row['dataset']}` " if len(rows) > 1 else "") + ", and ".join(found)


def _best_teller(told: Sequence[dict]) -> str | None:
    """The quality whose values differ most in how many are lost, or the number with the AUC farthest from one half."""
    found: list[tuple[float, str, str]] = []
    for quality in dict.fromkeys(row["quality"] for row in told):
        rows = [row for row in told if row["quality"] == quality]
        if rows[0]["auc"] is not None:
            found.append((2 * abs(rows[0]["auc"] - 0.5), quality, f"AUC {rows[0]['auc']:.2f}"))
        elif len(rows) > 1:
            low, high = (pick(rows, key=lambda row: row["share_lost"]) for pick in (min, max))
            text = ", ".join(
                f"{100 * row['share_lost']:.0f} % of {row['n']} {_asked(row['value'])} lost" for row in (high, low)
            )
            found.append((high["share_lost"] - low["share_lost"], quality, text))
    if not found:
        return None
    _, quality, text = max(found)
    return f"told apart best by {QUALITIES[quality]} ({text})"
