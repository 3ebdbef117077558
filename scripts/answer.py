"""Ask the model a shard of questions and grade its answers.

Writes one row per question: the answer's text and token ids, whether it is right, and the exact
answer tokens.
"""

from typing import TYPE_CHECKING

from anchorscope.answer.job import AnswerSettings, answer_file
from anchorscope.answer.prompts import PromptSet
from anchorscope.files.logs import configure_logging
from anchorscope.models.manifest import Manifest

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = AnswerSettings(
        rows=tuple(params.rows),
        prompts=PromptSet.from_json(params.prompt, Manifest.read(files.manifest).prompt),
        dtype=params.dtype,
        threads=snakemake.threads,
        batch_tokens=params.batch_tokens,
        code=params.code,
    )
    answer_file(files.questions, manifest=files.manifest, target=snakemake.output[0], settings=settings)
