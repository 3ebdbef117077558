"""Experiments on truths that are known: in one the claim holds, in the other only what could be taken for it.

Every truth has the logits of three probes: `full` and `half_a` under the first prompt, `second_b` under the second. An
example's evidence is its own; what prompt and probe add to it is noise.
"""

from collections.abc import Callable

import numpy as np
import polars as pl
import torch

from anchorscope.experiments.answer_only import answer_only_rows
from anchorscope.experiments.awareness import awareness_rows
from anchorscope.experiments.boundary import boundary_rows
from anchorscope.experiments.groups import RULES, Groups, read_groups
from anchorscope.experiments.judge import judge_experiment
from anchorscope.experiments.means import to_table
from anchorscope.experiments.patching import patching_rows
from anchorscope.experiments.saliency import SAMPLE, saliency_rows
from anchorscope.experiments.tell_groups import tell_groups
from anchorscope.extract.axes import Headline
from anchorscope.probe.examples import assign_folds
from anchorscope.summarise.bootstrap import Resamples, resample

HEADLINE = Headline("resid", "answer_last")
LAYERS = 2
COUNT = 400
PROBES = ("full", "half_a", "half_b", "second_b")
HOLDS = "holds"
Logits = dict[str, np.ndarray]  # by probe, [layers, examples]


def noisy(evidence: np.ndarray, generator: np.random.Generator, noise: float = 0.4) -> Logits:
    """What each probe reads of evidence [examples]."""
    return {probe: evidence + noise * generator.normal(size=(LAYERS, len(evidence))) for probe in PROBES}


def table(clean: Logits, changed: Logits, wrong: np.ndarray, intervention: str, popularity: np.ndarray) -> pl.DataFrame:
    """The rows of a delta table that the experiments read."""
    ids = [f"{number:04d}" for number in range(len(wrong))]
    folds = assign_folds(ids, groups=ids, labels=wrong, folds=5, seed=0)
    columns = {
        f"logit_{state}_{probe}": some[probe].ravel()
        for state, some in (("clean", clean), ("ko", changed))
        for probe in PROBES
    }
    return pl.DataFrame(
        {
            "id": ids * LAYERS,
            "cluster": ids * LAYERS,
            "popularity": np.tile(popularity, LAYERS).astype(np.int64),
            "hallucinated": np.tile(wrong, LAYERS),
            "layer": np.repeat(np.arange(LAYERS, dtype=np.int16), len(wrong)),
            "fold": np.tile(folds.astype(np.int8), LAYERS),
            **columns,
        }
    ).with_columns(
        component=pl.lit("resid"),
        position=pl.lit("answer_last"),
        intervention=pl.lit(intervention),
        repeat=pl.lit(0, pl.Int8),
    )


class World:
    """Examples, of which some may depend on the question, their clean logits, and those under the knockout."""

    def __init__(
        self,
        seed: int,
        two_kinds: bool,
        right: tuple[float, float] = (0.5, 0.5),
        push: float = 0.0,
        signal: float = 1.5,
    ):
        """`right` are the shares of right answers among those that depend on the question, and the others."""
        self.random = np.random.default_rng(seed)
        self.depends = self.random.random(COUNT) < 0.4
        self.wrong = self.random.random(COUNT) >= np.where(self.depends, *right)
        self.popularity = 10 ** (
            3 + 0.5 * (self.depends if two_kinds else ~self.wrong) + 0.5 * self.random.normal(size=COUNT)
        )
        self.evidence = np.where(self.wrong, signal, -signal) + self.random.normal(size=COUNT)
        self.clean = noisy(self.evidence, self.random)
        lost = self.depends if two_kinds else np.zeros(COUNT, bool)
        self.cut = self.moved(lambda logits: np.where(lost, -0.5 * logits, logits) + push)

    def moved(self, change: Callable[[np.ndarray], np.ndarray], noise: float = 0.7) -> Logits:
        """The logits of a pass that changes clean ones, with noise of its own."""
        return {probe: change(some) + noise * self.random.normal(size=some.shape) for probe, some in self.clean.items()}

    def rows(self, changed: Logits, intervention: str) -> pl.DataFrame:
        return table(self.clean, changed, self.wrong, intervention, self.popularity)

    def groups(self) -> Groups:
        return read_groups(self.rows(self.cut, "exact_question"), HEADLINE)

    def resamples(self) -> Resamples:
        return resample([f"{number:04d}" for number in range(COUNT)], 1, 300, seed=0)


def patching(truth: str, seed: int) -> pl.DataFrame:
    """Holds: patching takes evidence from those that depend on the question, other words do nothing.

    Else all words do the same to everybody; or there is one kind of examples, a push makes the groups, and patching
    moves everybody more than other words do, so that whatever lies near the threshold flips more often.
    """
    world = World(seed, two_kinds=truth != "near the threshold", push=1.5 if truth == "near the threshold" else 0.0)

    def lose(logits: np.ndarray) -> np.ndarray:
        return np.where(world.depends, -0.5 * logits, logits)

    def same(logits: np.ndarray) -> np.ndarray:
        return logits

    question = world.moved(lose, 0.7) if truth == HOLDS else world.moved(same, 2.0)
    others = world.moved(same, 2.0 if truth == "all words alike" else 0.7)
    passes = {"patch_question": question, "patch_random": others, "patch_right": question}
    scores = pl.concat(world.rows(changed, name) for name, changed in passes.items())
    scores = scores.with_columns(donor_popularity="popularity")
    return to_table(patching_rows(scores, world.groups(), world.resamples()))


def answer_only(truth: str, seed: int) -> pl.DataFrame:
    """Holds: the answer alone leaves no evidence to those that depend on the question. Else: to nobody."""
    world = World(seed, two_kinds=True)
    lost = world.depends if truth == HOLDS else np.ones(COUNT, bool)
    passes = {
        name: world.moved(lambda logits: np.where(lost, 0.0, logits)) for name in ("answer_only", "answer_after_other")
    }
    scores = pl.concat(world.rows(changed, name) for name, changed in passes.items())
    return to_table(answer_only_rows(scores, world.groups(), world.resamples()))


def boundary(truth: str, seed: int) -> pl.DataFrame:
    """Holds: those that depend on the question are more often right. Else: a push flips what was judged right."""
    right, push = ((0.85, 0.35), 0.0) if truth == HOLDS else ((0.5, 0.5), 1.5)
    world = World(seed, two_kinds=truth == HOLDS, right=right, push=push, signal=0.8)
    values = {"accuracy": 100.0 * ~world.wrong, "popularity": np.log10(world.popularity), "stands_for": np.ones(COUNT)}
    return to_table(boundary_rows(pl.DataFrame(values), world.groups(), world.resamples()))


def awareness(truth: str, seed: int) -> pl.DataFrame:
    """Holds: states say which kind an example is. Else: a push makes the group a matter of the clean logit."""
    world = World(seed, two_kinds=truth == HOLDS, push=0.0 if truth == HOLDS else 1.5)
    states = world.random.normal(size=(LAYERS, COUNT, 16))
    states[..., 0] = world.evidence
    states[..., 1] += 2.5 * world.depends
    told = tell_groups((torch.from_numpy(some).float() for some in states), world.groups(), seed=0)
    return to_table(awareness_rows(told, world.resamples()))


def saliency(truth: str, seed: int) -> pl.DataFrame:
    """Holds: two kinds of examples, one of which has little flow from the question. Else: one kind with a long tail."""
    generator = np.random.default_rng(seed)
    two = np.where(generator.random(COUNT) < 0.4, 1.0, 5.0) + generator.normal(size=COUNT)
    one = np.exp(generator.normal(size=(2, COUNT)))
    values = {"exact": two - two.min() if truth == HOLDS else one[0], "random": one[1]}
    rows = pl.concat(
        pl.DataFrame({"id": [f"{number:04d}" for number in range(COUNT)], "value": some}).with_columns(
            flow=pl.lit(flow)
        )
        for flow, some in values.items()
    ).with_columns(layer=pl.lit(3, pl.Int16), hallucinated=pl.col("id").cast(pl.Int32) % 2 == 0)
    return to_table(saliency_rows(rows, layer=3, seed=0), **SAMPLE)


# By experiment, the truths in which only what could be taken for its claim is there.
CONFOUNDS = {
    "patching": ("all words alike", "near the threshold"),
    "answer_only": ("everybody moves",),
    "boundary": ("a push",),
    "awareness": ("a push",),
    "saliency": ("one mode with a long tail",),
}
PLANTED = {
    "patching": patching,
    "answer_only": answer_only,
    "boundary": boundary,
    "awareness": awareness,
    "saliency": saliency,
}


def verdicts(experiment: str, truth: str, seed: int) -> dict[str | None, str]:
    """By rule; saliency has none."""
    pair = ("model", "data")
    found = judge_experiment(experiment, {pair: PLANTED[experiment](truth, seed)}, readable={pair})
    assert {row.rule for row in found} == ({None} if experiment == "saliency" else set(RULES))
    return {row.rule: row.verdict for row in found}
