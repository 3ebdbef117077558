"""The kinds of figures that a run draws, in the order in which a reader sees them.

Snakemake reads this list when it starts, so nothing heavy is imported here.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class FigureKind:
    """One kind of figure; `workflow/report/{name}.rst` describes it in Snakemake's own report."""

    name: str  # of its files; `draw_{name}` in a module of this package draws it
    caption: str  # on the report
    placement: Literal["top", "honest", "open", "folded"] = "folded"  # on the report: where it begins, then a section
    compares: Literal["places", "words", "windows"] | None = None  # drawn only where several of these were measured
    experiment: bool = False  # drawn only where the experiment of that name was run, in a section of the report for it

    @property
    def table(self) -> str:
        """The table that has the models and datasets of the figure."""
        if self.experiment:
            return self.name
        return "detection" if self in DETECTION_KINDS else "summary"


FIGURE_KINDS = (
    FigureKind(
        name="family",
        caption="As published: anchors by verdict flip at each layer",
        placement="top",
    ),
    FigureKind(
        name="honest",
        caption="What survives when one prompt labels and another measures; below, the control of all datasets",
        placement="honest",
    ),
    FigureKind(
        name="push",
        caption="The honest gap as measured, and without what the knockout does to all examples alike",
        placement="open",
    ),
    FigureKind(
        name="lines",
        caption="What the knockout does to each example, by form of question: its logit, cut against clean",
    ),
    FigureKind(
        name="auc",
        caption="How well the probes rank, clean, with the question cut, and with shuffled labels",
    ),
    FigureKind(
        name="share",
        caption="How many examples are Question-Anchored",
    ),
    FigureKind(
        name="grid",
        caption="Every component and position",
        compares="places",
    ),
    FigureKind(
        name="words",
        caption="The honest gap for other choices of the words that are cut",
        compares="words",
    ),
    FigureKind(
        name="windows",
        caption="The honest gap where words are cut in the last layers only: direct effects, or carried along",
        compares="windows",
    ),
    FigureKind(
        name="distribution",
        caption="Every example at the deepest layer",
    ),
    FigureKind(
        name="patching",
        caption="How often verdicts flip when the question's words are those of another question",
        experiment=True,
    ),
    FigureKind(
        name="answer_only",
        caption="What the probe says of the answer alone",
        experiment=True,
    ),
    FigureKind(
        name="boundary",
        caption="What the model knows: accuracy, refusals, popularity and certainty of each group",
        experiment=True,
    ),
    FigureKind(
        name="awareness",
        caption="How well clean states tell the group, and how much better than clean logits do",
        experiment=True,
    ),
    FigureKind(
        name="saliency",
        caption="How much flows from the question to the answer, over examples",
        experiment=True,
    ),
)

# Drawn where methods of detection are compared, in a section of the report for them.
DETECTION_KINDS = (
    FigureKind(
        name="detection",
        caption="How well each method tells hallucinated from right answers",
        placement="open",
    ),
    FigureKind(
        name="transfer",
        caption="What is lost when a method is trained on another dataset",
    ),
    FigureKind(
        name="reliability",
        caption="Whether probabilities are what they say, and the risk that is left when doubtful answers go",
    ),
)
KINDS = {kind.name: kind for kind in (*FIGURE_KINDS, *DETECTION_KINDS)}


def kinds_drawn(places: int, words: int, windows: int, experiments: Collection[str] = ()) -> list[str]:
    """The names of the kinds that have something to show.

    So many places of the grid, choices of words and windows (all layers are one) are measured, and these experiments.
    """
    several = {None: True, "places": places > 1, "words": words > 1, "windows": windows > 1}
    drawn = [kind for kind in FIGURE_KINDS if several[kind.compares]]
    return [kind.name for kind in drawn if not kind.experiment or kind.name in experiments]
