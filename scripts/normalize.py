"""Turn a dataset's rows into questions with accepted answers and exact question words.

Writes one row per usable question. The file's metadata and the log say how many rows were kept or
dropped, and why.
"""

from anchorscope import job
from anchorscope.questions.normalize import normalize_file

job.begin(snakemake.log[0])
normalize_file(
    snakemake.input[0],
    snakemake.output[0],
    dataset=snakemake.wildcards.dataset,
    layout=snakemake.params.layout,
    seed=snakemake.params.seed,
    where=snakemake.params.where,
    code=snakemake.params.code,
)
