"""Describe a model of the same shape as a trained one, with random weights.

Writes a manifest that names the trained model's folder: its config and tokenizer are used, its weights are not.
"""

from anchorscope import job
from anchorscope.models.manifest import Manifest, salmon_of

job.begin(snakemake.log[0])
salmon_of(Manifest.read(snakemake.input[0])).write(snakemake.output[0])
