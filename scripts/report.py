"""Put what was found, and what it rests on, on one self-contained page that opens without a network."""

import json

from anchorscope.extract.axes import Headline
from anchorscope.files.logs import configure_logging
from anchorscope.report.job import ReportSettings, write_report

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    settings = ReportSettings(
        models=dict(json.loads(params.models)),
        datasets=dict(json.loads(params.datasets)),
        figures=json.loads(params.figures),
        headline=Headline(**json.loads(params.headline)),
        outputs=json.loads(params.outputs),
    )
    write_report(dict(snakemake.input.items()), snakemake.output[0], settings)
