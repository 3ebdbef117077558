"""Choose the answers of a shard that are analysed.

Writes their rows, in the order in which they are analysed, each with how many answers it stands for. The file's
metadata say how many answers there were of each verdict.
"""

from anchorscope import job
from anchorscope.choose.balance import choose_file

job.begin(snakemake.log[0])
choose_file(
    snakemake.input[0],
    target=snakemake.output[0],
    balance=snakemake.params.balance,
    seed=snakemake.params.seed,
    code=snakemake.params.code,
)
