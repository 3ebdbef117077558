"""The normalize stage from a file to a file."""

from functools import partial
from pathlib import Path

from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.identity import canonical_json
from anchorscope.files.logs import log
from anchorscope.files.provenance import provenance
from anchorscope.questions.local_rows import name_row
from anchorscope.questions.normalize import normalize
from anchorscope.text.language import NOT_ENGLISH, mostly_english


def normalize_file(
    rows: Path | str, target: Path | str, *, dataset: str, layout: str, seed: int, where: str, code: str
) -> None:
    """Write the usable questions of a dataset; `where` is what messages call its file."""
    questions, counts = normalize(
        read_frame(rows), layout=layout, seed=seed, where=where, name_row=partial(name_row, where)
    )
    log.info("%s", ", ".join(f"{count} {reason}" for reason, count in counts.items()))
    if questions.is_empty():
        dropped = ", ".join(f"{count} rows have {reason}" for reason, count in counts.items())
        raise ValueError(f"{where} has no usable question: {dropped or 'it has no rows'}.")
    odd = [] if mostly_english(questions["question"]) else [NOT_ENGLISH]
    for remark in odd:
        log.warning("%s", remark)
    made = provenance(stage="normalize", dataset=dataset, layout=layout, remarks=odd, code=code)
    write_frame(target, questions, {**made, "counts": canonical_json(counts)})
