"""Ask the model a shard of questions and grade its answers.

Writes one row per question: the answer's text and token ids, whether it is right, and the exact
answer tokens.
"""

from anchorscope.answer.job import AnswerSettings, answer_file
from anchorscope.files.logs import configure_logging

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    settings = AnswerSettings.of(
        params,
        files.manifest,
        threads=snakemake.threads,
        rows=tuple(params.rows),
    )
    answer_file(files.questions, manifest=files.manifest, target=snakemake.output[0], settings=settings)
