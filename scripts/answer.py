"""Ask the model a shard of questions and grade its answers.

Writes one row per question: the answer's text and token ids, whether it is right, and the exact
answer tokens.
"""

from anchorscope import job
from anchorscope.answer.answers import AnswerSettings, answer_file

job.begin(snakemake.log[0])
answer_file(
    snakemake.input.questions,
    manifest=snakemake.input.manifest,
    target=snakemake.output[0],
    settings=AnswerSettings.of(
        snakemake.params,
        snakemake.input.manifest,
        threads=snakemake.threads,
        rows=tuple(snakemake.params.rows),
    ),
)
