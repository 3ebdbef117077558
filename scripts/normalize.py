"""Turn a dataset's rows into questions with accepted answers and exact question words.

Writes one row a usable question; how many rows were kept or dropped, and why, stands in the file's
metadata and in the log.
"""

from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import canonical_json
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.provenance import provenance
from anchorscope.questions.normalize import normalize

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    source = snakemake.input[0]
    params = snakemake.params
    questions, counts = normalize(read_frame(source), params.layout, params.seed, source)
    log.info("%s", ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    if questions.is_empty():
        raise ValueError(f"{source} has no usable question: {counts}.")
    about = provenance(stage="normalize", dataset=snakemake.wildcards.dataset, layout=params.layout, code=params.code)
    write_frame(snakemake.output[0], questions, {**about, "counts": canonical_json(counts)})
