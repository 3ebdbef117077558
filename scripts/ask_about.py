"""Ask the model about a shard of its own answers: whether each is true, and how sure it is.

Writes one row per analysed example.
"""

from typing import TYPE_CHECKING

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.ask_job import AskSettings, ask_file
from anchorscope.files.logs import configure_logging
from anchorscope.models.manifest import Manifest

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = AskSettings(
        prompts=PromptSet.from_json(params.prompts, Manifest.read(files.manifest).prompt),
        dtype=params.dtype,
        threads=snakemake.threads,
        batch_tokens=params.batch_tokens,
        balance=params.balance,
        seed=params.seed,
        code=params.code,
    )
    ask_file(files.answers, manifest=files.manifest, target=snakemake.output[0], settings=settings)
