"""Turn a dataset's rows into questions with accepted answers and exact question words.

Writes one row per usable question. The file's metadata and the log say how many rows were kept or
dropped, and why.
"""

from typing import TYPE_CHECKING

from anchorscope.files.logs import configure_logging
from anchorscope.questions.job import normalize_file

if TYPE_CHECKING:
    from snakemake.script import snakemake

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    normalize_file(
        snakemake.input[0],
        target=snakemake.output[0],
        dataset=snakemake.wildcards.dataset,
        layout=params.layout,
        seed=params.seed,
        where=params.where,
        code=params.code,
    )
