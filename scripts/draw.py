"""Draw every kind of figure for one set of models: PNG, PDF and SVG, for a full page's width and for a column's."""

import json

from anchorscope.figures import KINDS, View
from anchorscope.frames import read_frame
from anchorscope.logs import configure_logging, progress
from anchorscope.notes import unprobed
from anchorscope.panels import read_style, save
from anchorscope.parquet import made_from

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files = snakemake.params, snakemake.input
    tables = {name: read_frame(files[name]) for name in ("summary", "layers", "deepest")}
    models, datasets = dict(json.loads(params.models)), dict(json.loads(params.datasets))
    missing = unprobed(made_from(files.summary), models, datasets)
    widths = {"": read_style(files.style), "_column": read_style(files.style, column=True)}
    wanted = [(kind, width) for kind in KINDS for width in widths if hasattr(snakemake.output, f"{kind}{width}")]
    for kind, width in progress(wanted, len(wanted), "drawing"):
        style = widths[width]
        figure = KINDS[kind](tables, View(models, datasets, params.component, params.position, missing, style))
        for path in snakemake.output[f"{kind}{width}"]:
            save(figure, path, style)
