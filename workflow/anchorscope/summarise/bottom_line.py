"""What a run found of a model, in a few sentences that can be read alone."""

from collections.abc import Iterator, Sequence
from statistics import fmean

import polars as pl

from anchorscope.summarise.claims import JudgedClaim
from anchorscope.summarise.numbers import between, signed
from anchorscope.summarise.verdict_on_kinds import BY_DEGREES, ONE_MECHANISM, TWO_KINDS, UNDECIDED

NOT_PROBED = "not probed, because its answers are too few or too one-sided."
GAP_CLAIM, CONTROL_CLAIM = 1, 6  # Question-Anchored lies below Answer-Anchored; the control does nothing
FEW = 100  # examples of a dataset below which little can be said
MOST, LITTLE = 0.5, 0.25  # a form that makes up so much of one group, and so little of the other
NAMED = 4  # datasets that are named one by one; more are counted
VERDICTS = {
    TWO_KINDS: "Two kinds of examples are seen",
    BY_DEGREES: "Examples differ by degrees, not by kind,",
    ONE_MECHANISM: "One mechanism is enough",
    UNDECIDED: "Whether there are two kinds is undecided",
}
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


def bottom_line(
    model: str, claims: Sequence[JudgedClaim], kinds: Sequence[dict], *, series: pl.DataFrame, forms: pl.DataFrame
) -> str:
    """The gap as published, what is left of it, and the verdict on kinds; first, whether the groups are forms.

    `series` has the headline's rows, `kinds` is what `judge_kinds` returns.
    """
    rows = [row for row in claims if (row.claim, row.model) == (GAP_CLAIM, model)]
    if not rows:
        return NOT_PROBED
    whole = None if any(row.dataset is None for row in rows) else rows[0].dataset  # with one dataset, it is the whole
    honest, recentred = (
        next(row for row in rows if (row.dataset, row.logits) == (whole, logits))
        for logits in ("measured", "recentred")
    )
    if honest.effect is None:
        return f"nothing can be said, because {honest.because}."
    judged = list(dict.fromkeys(row.dataset for row in rows if row.dataset is not None and row.effect is not None))
    own = [row for row in kinds if row["model"] == model]
    sentences = [
        _few(own),
        *_forms(forms.filter(model=model)),
        f"{_counted(own)} averaged over {_averaged(judged)}, the gap between Question- and Answer-Anchored examples "
        f"{_published(series, model, judged)} as published (this model under the published rule, not the paper's "
        f"numbers), {_effect(honest)} when one prompt labels and another measures, and {_effect(recentred)} without "
        "the push, the shift that the knockout gives to every example alike.",
        _control([row for row in claims if (row.claim, row.model) == (CONTROL_CLAIM, model)]),
        *_verdicts(own),
    ]
    text = " ".join(filter(None, sentences))
    return text[0].lower() + text[1:]


def _few(own: Sequence[dict]) -> str:
    few = [row for row in own if row["n"] < FEW]
    return f"Little can be said {_on(few)}: fewer than {FEW} examples." if few else ""


def _forms(forms: pl.DataFrame) -> Iterator[str]:
    """Where one form makes up most of one group and little of the other, under the honest rule."""
    rows = forms.filter(rule="replicate", logits="measured", grouping="question_form")
    for first, second, name in (("question", "answer", "Question"), ("answer", "question", "Answer")):
        for row in rows.drop_nulls(["share_question", "share_answer"]).iter_rows(named=True):
            most, little = row[f"share_{first}"], row[f"share_{second}"]
            if most >= MOST and little <= LITTLE:
                yield (
                    f"On {row['dataset']} the groups are largely forms of questions: {row['form']} questions are "
                    f"{100 * most:.0f} % of the {name}-Anchored examples and {100 * little:.0f} % of the others."
                )


def _counted(own: Sequence[dict]) -> str:
    return f"Of {sum(row['n'] for row in own):,} examples," if own else "Here,"


def _averaged(datasets: Sequence[str]) -> str:
    return f"layers and {len(datasets)} datasets" if len(datasets) > 1 else "layers"


def _published(series: pl.DataFrame, model: str, datasets: Sequence[str]) -> str:
    wanted = {"rule": "flip", "logits": "measured", "anchor": "gap", "intervention": "exact_question", "model": model}
    gaps = series.filter(pl.col("dataset").is_in(datasets), **wanted)["area"].drop_nulls().to_list()
    return f"is {signed(fmean(gaps))} points" if gaps else "has no value"


def _effect(claim: JudgedClaim) -> str:
    if claim.effect is None:
        return f"unknown ({claim.because})"
    return f"{signed(claim.effect)} (95 % interval {between(claim.low, claim.high)})"


def _control(rows: Sequence[JudgedClaim]) -> str:
    """Where cutting as many other words moves the probe, too."""
    moved = [
        row for row in rows if row.verdict == "contradicted" and row.effect is not None and row.dataset is not None
    ]
    if not moved:
        return ""
    each = ", ".join(f"{row.dataset} ({signed(row.effect or 0.0)})" for row in moved)
    return f"Cutting as many other words of the question moves the probe, too, on {each}."


def _verdicts(own: Sequence[dict]) -> Iterator[str]:
    """Each verdict with the datasets that it is reached on, and what so many examples could not have shown."""
    for verdict, words in VERDICTS.items():
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
        named = [f"{row['dataset']} ({row['n']:,} examples)" for row in rows]
        return f"on {' and '.join([', '.join(named[:-1]), named[-1]] if len(named) > 1 else named)}"
    sizes = [row["n"] for row in rows]
    return f"on {len(rows)} datasets of {min(sizes):,} to {max(sizes):,} examples"


def _told(rows: Sequence[dict]) -> Iterator[str]:
    """What tells the kinds apart best, and whether they remain within forms; nothing where neither is known."""
    for row in rows:
        found = []
        if best := best_teller(row["told_apart"]):
            found.append(f"told apart best by {QUALITIES[best['quality']]} ({best['text']})")
        remain = [part["among"].replace("_", " ") for part in row["within"] if part["verdict"] == TWO_KINDS]
        if row["within"]:
            found.append(
                f"seen again within {' and '.join(remain)}" if remain else "seen within none of its larger forms"
            )
        if found:
            yield (f"on {row['dataset']} " if len(rows) > 1 else "") + ", and ".join(found)


def best_teller(told: Sequence[dict]) -> dict | None:
    """The quality whose values differ most in how many are lost, or the number with the AUC farthest from one half."""
    found: list[tuple[float, str, str]] = []
    for quality in dict.fromkeys(row["quality"] for row in told):
        rows = [row for row in told if row["quality"] == quality]
        if rows[0]["auc"] is not None:
            away = abs(rows[0]["auc"] - 0.5)
            found.append((2 * away, quality, f"AUC {rows[0]['auc']:.2f}"))
        elif len(rows) > 1:
            low, high = (pick(rows, key=lambda row: row["share_lost"]) for pick in (min, max))
            text = ", ".join(
                f"{100 * row['share_lost']:.0f} % of {row['n']} {row['value']} lost" for row in (high, low)
            )
            found.append((high["share_lost"] - low["share_lost"], quality, text))
    if not found:
        return None
    _, quality, text = max(found)
    return {"quality": quality, "text": text}
