"""What probes measure twice, in batches of other shapes or on other devices, is the same but for rounding."""

import torch

from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.delta import Measured, States
from anchorscope.probe.examples import Examples
from anchorscope.probe.label_errors import Labelling
from anchorscope.probe.logistic import fit
from anchorscope.probe.strengths import CHOICE_TOLERANCE, VALIDATED, cross_fitting
from rounding import assert_same, of_distances, of_probes


def check_measured(
    found: Measured, expected: Measured, states: States, examples: Examples, drawn: list[Labelling]
) -> None:
    """All that tables are made of, from states that are narrow enough to be described by all their directions."""
    clean, labels = states["first", "clean"], examples.hallucinated
    for mine, other, split in zip(found.scores, expected.scores, examples.splits, strict=True):
        assert torch.equal(mine.strengths, other.strengths)
        assert torch.equal(mine.converged, other.converged)
        said = [(labels, *key, mine.logits[key], logits) for key, logits in other.logits.items()]
        for probe, fitted in other.probes.items():
            seen = states[probe.prompt, "clean"]
            said.append((labels, probe, "clean", mine.probes[probe].logits(seen), fitted.logits(seen)))
        said.append((split.shuffled, FULL, "clean", mine.shuffled, other.shuffled))
        for key, logits in expected.mislabelled.items() if split is examples.splits[0] else ():
            both = zip(found.mislabelled[key].unbind(1), logits.unbind(1), strict=True)
            said += [(one.hallucinated, *key, *pair) for one, pair in zip(drawn, both, strict=True)]
        outer = cross_fitting(torch.from_numpy(split.folds))
        for own, probe, run, some, others in said:
            train = outer.train if probe.half is None else outer.train & torch.from_numpy(split.halves == probe.half)
            learnt = (states[probe.prompt, "clean"], torch.from_numpy(own), train, other.strengths)
            assert_same(some, others, of_probes(fit(*learnt), *learnt, said_of=states[probe.prompt, run]))
        rounding = 0.0
        for number, train, _ in outer.nested(VALIDATED):
            learnt = (clean, torch.from_numpy(labels), train[None], other.strengths[:, [number]])
            rounding = max(rounding, of_probes(fit(*learnt), *learnt, tolerance=CHOICE_TOLERANCE))
        # A loss adds up those of inner folds; none moves farther than its logits.
        assert_same(mine.inner_losses, other.inner_losses, VALIDATED * rounding)
    for run, distances in expected.distances.items():
        assert_same(found.distances[run], distances, of_distances(clean, states["first", run]))
