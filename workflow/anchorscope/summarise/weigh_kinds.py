"""Two kinds of examples, or one, for one model on one dataset: the tables `accounts` and `told_apart`."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import polars as pl
import torch

from anchorscope.extract.axes import Headline
from anchorscope.probe.quality import auc_with_interval
from anchorscope.summarise.accounts import Weighed, gains_of
from anchorscope.summarise.bootstrap import Resamples, ends_as_columns, interval, resample
from anchorscope.summarise.grouping import LABELLED_UNDER, both_prompts, read_places
from anchorscope.summarise.verdict_on_kinds import ALL_EXAMPLES, COMPARED, TWO_KINDS, judge
from anchorscope.summarise.weigh_layers import SetLogits, weigh_layers
from anchorscope.text.forms import QUESTION_FORMS
from anchorscope.text.normal_words import bare_words

FORMS_NEEDED = ["id", "question", "property", "answer"]
MIN_WITHIN = 100  # examples of a form within which kinds are looked for
MIN_TOLD = 10  # examples that share a value, so that it is said how many of them are lost
ACCOUNTS_SCHEMA: dict[str, Any] = {
    "among": pl.String,
    "layer": pl.Int16,
    "n": pl.Int64,
    **{f"{gain}{end}": pl.Float64 for gain in COMPARED for end in ("", "_error", "_low", "_high")},
    **dict.fromkeys(("correlation", "share_lost", "level_lost"), pl.Float64),
    **dict.fromkeys(("at_clean", "one_curve", "kept_curve"), pl.List(pl.Float32)),
}
TOLD_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("quality", "value"), pl.String),
    "n": pl.Int64,
    **{f"{name}{end}": pl.Float64 for name in ("share_lost", "auc") for end in ("", "_low", "_high")},
}


@dataclass(frozen=True)
class MeasuredPlace:
    """Logits [layers, prompts, examples] of the examples in which something is cut, and what is known of each."""

    clean: np.ndarray
    cut: np.ndarray
    folds: np.ndarray  # [examples]
    examples: pl.DataFrame

    @property
    def logits(self) -> SetLogits:
        folds = np.unique(self.folds, return_inverse=True)[1]
        return SetLogits(*map(torch.from_numpy, (self.clean, self.cut, folds)))

    def among(self, members: np.ndarray) -> "MeasuredPlace":
        return MeasuredPlace(
            self.clean[..., members], self.cut[..., members], self.folds[members], self.examples.filter(members)
        )


def weigh_kinds(
    delta: pl.DataFrame,
    answers: pl.DataFrame,
    headline: Headline,
    *,
    bootstrap_draws: int,
    seed: int,
    processes: int = 1,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Both tables. The second is about the kinds, and empty where two are not seen in this dataset alone."""
    measured = _read(delta.filter(**vars(headline)), answers)
    resamples = partial(_resamples, bootstrap_draws=bootstrap_draws, seed=seed)
    whole = resamples(measured)
    (weighed,) = weigh_layers([measured.logits], processes=processes, what="weighing accounts")
    rows = _rows(ALL_EXAMPLES, weighed, whole, by_layer=True)
    told = pl.DataFrame(schema=TOLD_SCHEMA)
    if judge(rows[-1], verdicts=1).verdict == TWO_KINDS:
        parts = {among: measured.among(members) for among, members in _parts(measured.examples)}
        logits = [part.logits for part in parts.values()]
        within = weigh_layers(logits, processes=processes, what="weighing accounts within forms")
        for (among, part), found in zip(parts.items(), within, strict=True):
            rows += _rows(among, found, resamples(part), by_layer=False)
        told = _told_apart(measured, weighed.lost.numpy().mean(0), whole)
    return pl.DataFrame(rows, schema=ACCOUNTS_SCHEMA), told


def _read(delta: pl.DataFrame, answers: pl.DataFrame) -> MeasuredPlace:
    """From the headline's rows; logits are averaged over repeats."""
    rows = delta.filter(intervention=LABELLED_UNDER).sort("repeat", "layer", "id")
    (place,) = read_places(rows).values()
    clean, cut = (values.swapaxes(0, 1) for values in both_prompts(place))
    examples = rows.head(place.folds.shape[1]).join(
        answers.select(FORMS_NEEDED), on="id", how="left", maintain_order="left"
    )
    return MeasuredPlace(clean, cut, place.folds[0], examples).among(np.isfinite(cut).all((0, 1)))


def _resamples(measured: MeasuredPlace, *, bootstrap_draws: int, seed: int) -> Resamples:
    return resample(measured.examples["cluster"].to_list(), 1, bootstrap_draws, seed)


def _rows(among: str, weighed: Weighed, resamples: Resamples, *, by_layer: bool) -> list[dict]:
    """One row for each layer, if asked for, and one for the mean over layers, whose layer is null."""
    gains = torch.stack([*gains_of(weighed).values()]).numpy()

    def row(layer: int | None, by_example: np.ndarray, shape: dict) -> dict:
        about = {"among": among, "layer": layer, "n": gains.shape[-1]}
        return about | _gains(by_example, resamples) | shape

    layers = [row(layer, gains[:, layer], shape) for layer, shape in enumerate(_shapes(weighed))] if by_layer else []
    overall = {"correlation": weighed.correlation, "share_lost": weighed.share}
    means = {name: float(values.double().mean()) for name, values in overall.items()}
    return [*layers, row(None, gains.mean(1), means)]


def _shapes(weighed: Weighed) -> list[dict]:
    """The curves of each layer, under the first prompt."""
    return [
        {
            "correlation": float(weighed.correlation[layer]),
            "share_lost": float(weighed.share[layer]),
            "level_lost": float(weighed.level[layer, 0]),
            "at_clean": weighed.at[layer, 0].tolist(),
            "one_curve": weighed.one[layer, 0].tolist(),
            "kept_curve": weighed.kept[layer, 0].tolist(),
        }
        for layer in range(len(weighed.share))
    ]


def _gains(by_example: np.ndarray, resamples: Resamples) -> dict[str, float]:
    """Mean gains in nats per example [gains, examples], each with its standard error and interval over subjects."""
    drawn = resamples.weights @ by_example.T / resamples.weights.sum(1, keepdims=True)  # [resamples, gains]
    found = zip(by_example.mean(1), drawn.std(0, ddof=1), *interval(drawn), strict=True)
    return {
        f"{gain}{end}": float(value)
        for gain, values in zip(COMPARED, found, strict=True)
        for end, value in zip(("", "_error", "_low", "_high"), values, strict=True)
    }


def _parts(examples: pl.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Within which examples kinds are looked for again: each form that is not rare, and answers of the model's own."""
    for form in QUESTION_FORMS:
        members = (examples["question_form"] == form).fill_null(False).to_numpy()
        if MIN_WITHIN <= members.sum() < len(members):
            yield f"question_form {form}", members
    outside = (~examples["answer_in_question"]).fill_null(False).to_numpy()
    if MIN_WITHIN <= outside.sum() < len(outside):
        yield "answer_in_question no", outside


def _told_apart(measured: MeasuredPlace, lost: np.ndarray, resamples: Resamples) -> pl.DataFrame:
    """What tells the kinds apart: how many of each value are lost, and how well a number tells, as an AUC.

    `lost` [examples] is the probability of being of the lost kind, averaged over layers.
    """
    examples = measured.examples
    shared = [
        (quality, value, (examples[quality] == value).fill_null(False).to_numpy())
        for quality in ("question_form", "answer_form", "property", "answer_in_question", "hallucinated")
        for value in examples[quality].drop_nulls().unique(maintain_order=True)
    ]
    shared = [one for one in shared if one[2].sum() >= MIN_TOLD]
    inside = np.array([members for *_, members in shared], bool).reshape(len(shared), len(lost))
    counts, sums = (resamples.weights @ part.T.astype(np.float32) for part in (inside, inside * lost))
    drawn = sums / np.maximum(counts, 1e-9)  # [resamples, values]
    rows: list[dict] = [
        {
            "quality": quality,
            "value": {True: "yes", False: "no"}.get(value, value),
            "n": int(members.sum()),
            **ends_as_columns("share_lost", float(lost[members].mean()), by_resample),
        }
        for (quality, value, members), by_resample in zip(shared, drawn.T, strict=True)
    ]
    likely, clusters = lost > 0.5, examples["cluster"].to_list()
    for quality, values in _numbers(measured).items():
        known = np.isfinite(values)
        if min((likely & known).sum(), (~likely & known).sum()) >= MIN_TOLD:
            area = auc_with_interval(values[None, None, known], likely[known], list(compress(clusters, known)))
            rows.append(
                {"quality": quality, "n": int(known.sum()), **{name: float(one[0]) for name, one in area.items()}}
            )
    return pl.DataFrame(rows, schema=TOLD_SCHEMA)


def _numbers(measured: MeasuredPlace) -> dict[str, np.ndarray]:
    """What is known of each example as a number, [examples]; NaN where it is not."""
    examples = measured.examples

    def words(column: str) -> np.ndarray:
        return np.array([len(bare_words(text or "")) for text in examples[column]], float)

    return {
        "popularity": examples["popularity"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
        "question_length": words("question"),
        "answer_length": words("answer"),
        "clean_logit": measured.clean.mean((0, 1)),
        "clean_logit_size": np.abs(measured.clean.mean((0, 1))),
    }
