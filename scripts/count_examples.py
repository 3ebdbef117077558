"""Count questions and answers, kept and left out, by reason.

Writes one row per model and dataset, and one per dataset and reason why its rows were kept or dropped.
"""

import json

from anchorscope.files.atomic import atomic
from anchorscope.files.logs import configure_logging
from anchorscope.summarise.counts import count_examples, count_questions

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, outputs = snakemake.params, snakemake.input, snakemake.output
    questions = dict(zip(json.loads(params.datasets), files.questions, strict=True))
    examples = count_examples(pairs=json.loads(params.pairs), questions=questions, chosen=files.chosen)
    for table, path in ((examples, outputs.examples), (count_questions(questions), outputs.questions)):
        with atomic(path) as target:
            table.write_csv(target)
