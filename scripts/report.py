"""Put what was found, and what it rests on, on one self-contained page that opens without a network."""

import json
from itertools import groupby
from pathlib import Path

import polars as pl

from anchorscope.draw.figures import View
from anchorscope.draw.panels import read_style
from anchorscope.files.atomic import atomic
from anchorscope.files.frames import read_frame
from anchorscope.files.identity import read_json
from anchorscope.files.logs import configure_logging
from anchorscope.files.sealed_parquet import made_from
from anchorscope.report.chart import family_chart
from anchorscope.report.claims import claims_section
from anchorscope.report.examples import choose, examples_section, with_answers
from anchorscope.report.figures import Link, figures_section, files_section, make_pictures, opening_section
from anchorscope.report.findings import findings, published_gaps
from anchorscope.report.page import Section, chart_section, page, provenance_section
from anchorscope.report.tables import accuracy, deepest_layers, kept_questions, named, numbers_section, reference_auc
from anchorscope.summarise.notes import mark_random, notes, unprobed


def read_csv(path: str) -> pl.DataFrame:
    """A table whose names are texts, also where they look like numbers."""
    return pl.read_csv(path, schema_overrides={"model": pl.String, "dataset": pl.String})


def find_examples(deepest: str, answers: list[str], models: dict, datasets: dict) -> dict:
    """The examples to show, by the titles of model and dataset; the answers files of a pair stand together."""
    chosen = choose(read_frame(deepest))
    pairs = [(model, dataset) for model in models for dataset in datasets]
    shards = len(answers) // len(pairs)
    found = {}
    for number, (model, dataset) in enumerate(pairs):
        mine = chosen.filter(model=model, dataset=dataset)
        if not mine.is_empty():
            own = answers[number * shards : (number + 1) * shards]
            found[models[model], datasets[dataset]] = with_answers(mine, own)
    return found


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, target = snakemake.params, snakemake.input, snakemake.output[0]
    plain, datasets = dict(json.loads(params.models)), dict(json.loads(params.datasets))
    place = {"component": params.component, "position": params.position}
    summary, about = read_frame(files.summary), made_from(files.summary)
    claims = read_json(files.claims)
    models = mark_random(plain, claims["weights"])
    sets = {name: " · ".join(models[one] for one in some) for name, some in json.loads(params.figures).items()}
    tables = {
        "deepest": deepest_layers(summary, **place),
        "auc": reference_auc(read_frame(files.layers), **place),
        "accuracy": accuracy(read_csv(files.examples)),
        "questions": kept_questions(read_csv(files.questions)),
    }
    chart = family_chart(summary, View(plain, datasets, **place, style=read_style(files.style)))
    drawn = {name: list(some) for name, some in groupby(files.figures, lambda path: Path(path).parent.name)}
    pictures = make_pictures(drawn, sets, target)
    found = findings(claims, published_gaps(summary.filter(**place)), models)
    sections = {
        "Claims": claims_section(claims, models, datasets),
        "ΔP by layer": chart_section(chart),
        "Figures": figures_section(pictures),
        "Numbers": numbers_section({name: named(frame, models, datasets) for name, frame in tables.items()}),
        "Examples": examples_section(find_examples(files.deepest, files.answers, models, datasets)),
        "What made it": provenance_section(
            read_json(files.provenance), models, datasets, Link.to(files.provenance, target)
        ),
        "Files": files_section(json.loads(params.outputs), target),
    }
    said = [*notes(summary, plain, datasets), unprobed(about, plain, datasets)]
    with atomic(target) as path:
        shown = [Section(title, content) for title, content in sections.items()]
        path.write_text(page(opening_section(pictures, found), filter(None, said), shown), encoding="utf-8")
