"""Draw one figure of the config in three formats: PNG, PDF and SVG."""

import json

from anchorscope.figures import draw_family, save
from anchorscope.frames import read_frame
from anchorscope.logs import configure_logging
from anchorscope.notes import note, random_models, unprobed
from anchorscope.parquet import made_from

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    spec = json.loads(params.figure)
    summary = read_frame(snakemake.input[0])
    models = dict(zip(spec["models"], json.loads(params.titles), strict=True))
    about = made_from(snakemake.input[0])
    random = [name for name in random_models(about) if name in models]
    datasets = dict(json.loads(params.datasets))
    missing = unprobed(about, models, datasets)
    figure = draw_family(
        summary,
        models=models,
        datasets=datasets,
        rule=spec["rule"],
        intervention=spec["intervention"],
        component=spec["component"],
        position=spec["position"],
        note=note(json.loads(params.bundled), [models[name] for name in random], params.window, missing),
        random=random,
    )
    for path in snakemake.output:
        save(figure, path)
