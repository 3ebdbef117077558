"""Draw every kind of figure for one set of models as PNG, PDF and SVG, as wide as a page and as wide as a column.

Figures of a run, or those of detection: whatever the tables are given for.
"""

import json

from anchorscope import job
from anchorscope.draw.draw_figures import Source, draw_figures
from anchorscope.files.sealed_parquet import made_from
from anchorscope.summarise.wording import unprobed

job.begin(snakemake.log[0])
models, datasets = dict(json.loads(snakemake.params.models)), dict(json.loads(snakemake.params.datasets))
tables = {name: path for name, path in snakemake.input.items() if name != "style"}
draw_figures(
    {name: list(files) for name, files in snakemake.output.items()},
    Source(
        tables=tables,
        models=models,
        datasets=datasets,
        headline=json.loads(snakemake.params.headline),
        note=unprobed(made_from(tables.get("summary") or tables["detection"]), models, datasets),
        style=snakemake.input.style,
    ),
    snakemake.threads,
)
