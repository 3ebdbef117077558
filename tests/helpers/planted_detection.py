"""Simulated readings with a known truth: what the methods would read if pathways mattered, or not, or nothing did."""

import numpy as np
import torch

from anchorscope.detect.fits import LayerProbes, probe_layers
from anchorscope.detect.gates import GATE_PASSES
from anchorscope.detect.reading import Reading, reading_of
from anchorscope.detect.reweighting import AMOUNTS, GATES, Reweighted
from anchorscope.detect.scoring import training_sets_of
from anchorscope.extract.axes import EXACT
from anchorscope.probe.examples import Examples, examples_of
from anchorscope.probe.strengths import fit_training_sets

TWO_DIRECTIONS, ONE_DIRECTION, NOTHING = TRUTHS = ("two directions", "one direction", "nothing")
LAYERS, WIDTH = 3, 12
COMMON, OWN, TELLING = 0.7, 1.2, 2.0  # how far the label, the label of a group, and the group move a state
WORDS = "river king moon battle song city year novel actor team".split()


class World:
    """One draw of a truth. Half of the examples are Question-Anchored, and the state tells which."""

    def __init__(self, truth: str, seed: int, examples: int = 200):
        self.random, self.truth = np.random.default_rng(seed), truth
        keys = [
            {"id": f"q{number:04}", "right": number % 2 == 0, "subject": None, "popularity": None}
            for number in range(examples)
        ]
        self.examples: Examples = examples_of(keys, folds=5, repeats=1, seed=seed, where="a simulation")
        self.anchored = self.random.random(examples) < 0.5
        self.states = torch.from_numpy(self._layers()).float()  # clean, first prompt: [layers, examples, width]

    @property
    def sign(self) -> np.ndarray:
        return np.where(self.examples.hallucinated, 1, -1)

    def _state(self) -> np.ndarray:
        """Feature 0 tells the label of everyone, 1 that of either group in its own way, 2 the group."""
        state = self.random.normal(size=(len(self.sign), WIDTH))
        if self.truth == NOTHING:
            return state
        group = np.where(self.anchored, 1, -1)
        state[:, 0] += COMMON * self.sign
        state[:, 1] += OWN * self.sign * (group if self.truth == TWO_DIRECTIONS else 1)
        state[:, 2] += TELLING * group
        return state

    def _layers(self) -> np.ndarray:
        return np.stack([self._state() for _ in range(LAYERS)])

    def _cut(self, clean: np.ndarray) -> np.ndarray:
        """The states of the same passes without the question: what tells the label is reversed in one group."""
        cut = clean + 0.1 * self.random.normal(size=clean.shape)
        if self.truth != NOTHING:
            cut[:, :2] *= np.where(self.anchored, -1, 1)[:, None]
        return cut

    def reading(self) -> Reading:
        first, second = self.states[LAYERS // 2].numpy(), self._state()
        states = {("first", "clean"): first, ("second", "clean"): second}
        states |= {(prompt, EXACT): self._cut(states[prompt, "clean"]) for prompt in ("first", "second")}
        draw = {run: torch.from_numpy(states[run]).float() for run in GATE_PASSES}
        moved = {
            (gate, amount): torch.from_numpy(first + amount * self.random.normal(size=first.shape)).float()
            for gate in GATES
            for amount in AMOUNTS
            if amount
        }
        names = self.examples.ids
        rows = {name: self._answer() for name in names}
        for row in rows.values():
            row |= {"p_true": self.random.random(), "confidence": self.random.integers(10) / 9}
        for row in rows.values():
            row |= {"samples": [self._text(2) for _ in range(5)]}
        return reading_of(
            self.examples,
            draw,
            rows,
            answer_scores=True,
            reweighted=Reweighted(names, torch.from_numpy(self.random.normal(size=first.shape)).float(), moved),
        )

    def _answer(self) -> dict:
        final = int(self.random.integers(1, 8))
        return {
            "question": self._text(5),
            "answer": self._text(2),
            "answer_final": final,
            "logprobs": -self.random.random(final + 3),
            "entropies": self.random.random(final + 3),
        }

    def _text(self, words: int) -> str:
        return " ".join(self.random.choice(WORDS, words))


def probes_of_layers(world: World, reading: Reading) -> LayerProbes:
    """The plain probes of all layers, cross-fitted."""
    training_sets = training_sets_of(reading)
    plain = fit_training_sets(world.states, reading.labels, training_sets)
    return probe_layers(world.states, reading.labels, training_sets, plain)
