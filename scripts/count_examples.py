"""Count questions and answers, kept and left out, by reason.

Writes one row per model and dataset, and one per dataset and reason why its rows were kept or dropped.
"""

import json

from anchorscope import job
from anchorscope.files.csv_file import write_csv
from anchorscope.summarise.counts import count_examples, count_questions

job.begin(snakemake.log[0])
questions = dict(zip(json.loads(snakemake.params.datasets), snakemake.input.questions, strict=True))
examples = count_examples(pairs=json.loads(snakemake.params.pairs), questions=questions, chosen=snakemake.input.chosen)
write_csv(snakemake.output.examples, examples)
write_csv(snakemake.output.questions, count_questions(questions))
