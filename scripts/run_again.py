"""Run a shard's answers again: ask the model about them, and shift its attention towards the pathway of a gate.

Writes one row per analysed example to each of two tables: whether the model calls its answer true and how sure it is;
and the answer's state for each gate and amount, beside the clean state of the question's last token. Where nothing was
probed, the table of states is empty.
"""

from anchorscope import job
from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.again import AgainSettings, run_again
from anchorscope.extract.axes import Headline
from anchorscope.models.manifest import Manifest

job.begin(snakemake.log[0])
run_again(
    snakemake.input.chosen,
    gates=snakemake.input.gates,
    manifest=snakemake.input.manifest,
    asked=snakemake.output.asked,
    reweighted=snakemake.output.reweighted,
    settings=AgainSettings.of(
        snakemake.params,
        snakemake.input.manifest,
        threads=snakemake.threads,
        headline=Headline.from_json(snakemake.params.headline),
        about=PromptSet.from_json(snakemake.params.about, Manifest.read(snakemake.input.manifest).prompt),
    ),
)
