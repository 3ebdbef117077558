"""Turn a dataset's rows into questions with accepted answers and exact question words.

Writes one row a usable question; how many rows were kept or dropped, and why, stands in the file's
metadata and in the log.
"""

from anchorscope.files import atomic, canonical_json, provenance
from anchorscope.logs import configure_logging, log
from anchorscope.questions import normalize
from anchorscope.raw import read_raw

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    source = snakemake.input[0]
    params = snakemake.params
    questions, counts = normalize(read_raw(source), params.layout, params.seed, source)
    log.info("%s", ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    if questions.is_empty():
        raise ValueError(f"{source} has no usable question: {counts}.")
    about = provenance(stage="normalize", dataset=snakemake.wildcards.dataset, layout=params.layout, code=params.code)
    with atomic(snakemake.output[0]) as target:
        questions.write_parquet(target, metadata={**about, "counts": canonical_json(counts)})
