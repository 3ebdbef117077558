"""Run a shard's answers with attention shifted towards the pathway that a gate predicts, and keep what is probed.

Writes one row per analysed example: its state for each gate and amount, and the clean state of its question's last
token. Where nothing was probed, the table is empty.
"""

import json
from typing import TYPE_CHECKING

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.reweight_job import ReweightSettings, reweight_file
from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.models.manifest import Manifest

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = ReweightSettings(
        headline=Headline(**json.loads(params.headline)),
        prompts=PromptSet.from_json(params.prompts, Manifest.read(files.manifest).prompt),
        dtype=params.dtype,
        threads=snakemake.threads,
        batch_tokens=params.batch_tokens,
        balance=params.balance,
        seed=params.seed,
        code=params.code,
    )
    reweight_file(
        files.answers,
        gates=files.gates,
        manifest=files.manifest,
        target=snakemake.output[0],
        settings=settings,
    )
