"""All experiments by name, and the estimates of one of them."""

import polars as pl

from anchorscope.experiments.answer_only import ANSWER_ONLY
from anchorscope.experiments.awareness import AWARENESS
from anchorscope.experiments.boundary import BOUNDARY
from anchorscope.experiments.means import to_table
from anchorscope.experiments.patching import PATCHING
from anchorscope.experiments.record import Experiment, Material
from anchorscope.experiments.saliency import SALIENCY
from anchorscope.summarise.claims import CLAIMS, Claim

# In the order of pages; each has the name of its claim.
EXPERIMENTS: dict[str, Experiment] = {
    experiment.claim.name: experiment for experiment in (PATCHING, ANSWER_ONLY, BOUNDARY, AWARENESS, SALIENCY)
}
EVERY_CLAIM: list[Claim] = [*CLAIMS.values(), *(experiment.claim for experiment in EXPERIMENTS.values())]


def estimate_experiment(name: str, given: Material) -> pl.DataFrame:
    """One row per measure, condition, stratum, rule, anchor and layer."""
    experiment = EXPERIMENTS[name]
    return to_table(experiment.rows(given), **experiment.columns)
