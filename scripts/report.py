"""Put what was found, and what it rests on, on one self-contained page that opens without a network."""

import json

from anchorscope import job
from anchorscope.extract.axes import Headline
from anchorscope.report.job import write_report

job.begin(snakemake.log[0])
write_report(
    dict(snakemake.input.items()),
    snakemake.output[0],
    plain=dict(json.loads(snakemake.params.models)),
    datasets=dict(json.loads(snakemake.params.datasets)),
    figures=json.loads(snakemake.params.figures),
    headline=Headline.from_json(snakemake.params.headline),
    outputs=json.loads(snakemake.params.outputs),
)
