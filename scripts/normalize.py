"""Turn a dataset's rows into questions with accepted answers and exact question words.

Writes one row per usable question. The file's metadata and the log say how many rows were kept or
dropped, and why.
"""

from functools import partial

from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import canonical_json
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.provenance import provenance
from anchorscope.questions.local_rows import name_row
from anchorscope.questions.normalize import normalize
from anchorscope.text.language import NOT_ENGLISH, mostly_english

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    rows = read_frame(snakemake.input[0])
    questions, counts = normalize(
        rows,
        layout=snakemake.params.layout,
        seed=snakemake.params.seed,
        where=snakemake.params.where,
        name_row=partial(name_row, snakemake.params.where),
    )
    log.info("%s", ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    if questions.is_empty():
        dropped = ", ".join(f"{count} rows have {reason}" for reason, count in counts.items())
        raise ValueError(f"{snakemake.params.where} has no usable question: {dropped or 'it has no rows'}.")
    odd = [] if mostly_english(questions["question"]) else [NOT_ENGLISH]
    for remark in odd:
        log.warning("%s", remark)
    metadata = provenance(
        stage="normalize",
        dataset=snakemake.wildcards.dataset,
        layout=snakemake.params.layout,
        remarks=odd,
        code=snakemake.params.code,
    )
    write_frame(snakemake.output[0], questions, {**metadata, "counts": canonical_json(counts)})
