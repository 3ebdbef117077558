"""Put what was found, and what it rests on, on one self-contained page that opens without a network."""

import json
from itertools import groupby, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from anchorscope.draw.panels import read_style
from anchorscope.draw.views import View
from anchorscope.extract.axes import Headline
from anchorscope.files.atomic import atomic
from anchorscope.files.frames import read_frame
from anchorscope.files.identity import read_json
from anchorscope.files.logs import configure_logging
from anchorscope.files.sealed_parquet import made_from
from anchorscope.report.chart import family_chart
from anchorscope.report.claims import claims_section
from anchorscope.report.detection import detection_section
from anchorscope.report.examples import choose, examples_section, not_probed, with_answers
from anchorscope.report.experiments import TITLES, experiment_section
from anchorscope.report.figures import Link, Picture, figures_section, files_section, make_pictures, opening_section
from anchorscope.report.page import Section, chart_section, page, provenance_section
from anchorscope.report.survives import survives_section
from anchorscope.report.tables import (
    accuracy,
    deepest_layers,
    distance_table,
    form_table,
    kept_questions,
    named,
    numbers_section,
    reference_auc,
    text_alone,
)
from anchorscope.summarise.counts import by_pair
from anchorscope.summarise.notes import coarse_roundings, mark_random, notes, plain_paths, unprobed

if TYPE_CHECKING:
    from snakemake.script import snakemake


def read_csv(path: str) -> pl.DataFrame:
    """A table whose names are texts, even where they look like numbers."""
    return pl.read_csv(path, schema_overrides={"model": pl.String, "dataset": pl.String})


def read_tables(
    files: Any, found: dict[str, pl.DataFrame], summary: pl.DataFrame, headline: Headline
) -> dict[str, pl.DataFrame]:
    """The tables that the report shows, without salmons."""
    layers, strata, forms = (
        found[name].filter(pl.col("model").is_in(summary["model"].unique().to_list()))
        for name in ("layers", "strata", "forms")
    )
    return {
        "deepest": deepest_layers(summary, headline),
        "auc": reference_auc(layers, headline),
        "text": text_alone(found["text"], headline),
        "forms": form_table(forms, headline),
        "distances": distance_table(layers, strata, headline),
        "accuracy": accuracy(read_csv(files.examples)),
        "questions": kept_questions(read_csv(files.questions)),
    }


def read_examples(
    deepest: str, answers: list[str], models: dict[str, str], datasets: dict[str, str]
) -> dict[tuple[str, str], pl.DataFrame]:
    """The examples to show, by the titles of model and dataset."""
    chosen = choose(read_frame(deepest))
    pairs = list(product(models, datasets))
    examples = {}
    for (model, dataset), own in zip(pairs, by_pair(answers, pairs), strict=True):
        mine = chosen.filter(model=model, dataset=dataset)
        shown = not_probed(own) if mine.is_empty() else with_answers(mine, own)
        examples[models[model], datasets[dataset]] = shown
    return examples


def read_remarks(
    questions: list[str], answers: list[str], models: dict[str, str], datasets: dict[str, str]
) -> list[str]:
    """What was found odd about most questions of a dataset, or about most answers of a model."""
    pairs = list(product(models, datasets))
    asked = [
        f"{title}: {remark}"
        for title, path in zip(datasets.values(), questions, strict=True)
        for remark in made_from(path)["remarks"]
    ]
    return asked + [
        f"{models[model]} on {datasets[dataset]}: {remark}"
        for (model, dataset), own in zip(pairs, by_pair(answers, pairs), strict=True)
        for remark in dict.fromkeys(remark for path in own for remark in made_from(path)["remarks"])
    ]


def experiment_sections(
    files: Any, pictures: dict[str, list[Picture]], claims: dict, models: dict[str, str], datasets: dict[str, str]
) -> list[Section]:
    """A section for each experiment that was run."""
    drawn = [picture for of_set in pictures.values() for picture in of_set]
    return [
        Section(
            title,
            experiment_section(
                name,
                read_frame(files[name]),
                pictures=[picture for picture in drawn if picture.kind.name == name],
                claims=claims,
                models=models,
                datasets=datasets,
            ),
        )
        for name, title in TITLES.items()
        if name in dict(files.items())
    ]


def detection_sections(
    files: Any, sets: dict[str, str], models: dict[str, str], datasets: dict[str, str], page: str
) -> list[Section]:
    """The section on detection, where methods were compared; `sets` has the models' titles of each set of figures."""
    if not files.detection:
        return []
    section = detection_section(
        {Path(path).stem: read_frame(path) for path in files.detection},
        pictures=[one for some in make_pictures(by_set(files.detection_figures), sets, page).values() for one in some],
        models=models,
        datasets=datasets,
        files=[Link.to(path, page) for path in files.detection],
        detectors=[Link.to(path, page) for path in files.detectors],
    )
    return [Section("Detection", section)]


def by_set(figures: list[str]) -> dict[str, list[str]]:
    """Figures by the set of models that they show."""
    return {name: list(some) for name, some in groupby(figures, lambda path: Path(path).parent.name)}


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, target = snakemake.params, snakemake.input, snakemake.output[0]
    plain, datasets = dict(json.loads(params.models)), dict(json.loads(params.datasets))
    headline = Headline(**json.loads(params.headline))
    summary = read_frame(files.summary).filter(pl.col("model").is_in(list(plain)))  # without salmons
    claims = read_json(files.claims)
    models = mark_random(plain, claims["weights"])
    sets = {name: " · ".join(models[one] for one in some) for name, some in json.loads(params.figures).items()}
    pictures = make_pictures(by_set(files.figures), sets, target)
    chart = family_chart(summary, View(plain, datasets, headline=headline, style=read_style(files.style)))
    found = {name: read_frame(files[name]) for name in ("text", "layers", "series", "strata", "forms", "label_errors")}
    tables = read_tables(files, found, summary, headline)
    examples = read_examples(deepest=files.deepest, answers=files.answers, models=models, datasets=datasets)
    sections = [
        Section("Claims", claims_section(claims, models, datasets)),
        Section("What survives", survives_section(found, headline, models, datasets)),
        Section("ΔP by layer", chart_section(chart)),
        Section("Figures", figures_section(pictures)),
        *experiment_sections(files, pictures, claims, models, datasets),
        *detection_sections(files, sets, models=models, datasets=datasets, page=target),
        Section("Numbers", numbers_section({name: named(table, models, datasets) for name, table in tables.items()})),
        Section("Examples", examples_section(examples)),
        Section(
            "What made it",
            provenance_section(read_json(files.provenance), models, datasets, file=Link.to(files.provenance, target)),
        ),
        Section("Files", files_section(json.loads(params.outputs), target)),
    ]
    made = made_from(files.summary)
    of_paths = [*plain_paths(made, models), *coarse_roundings(made, models)]
    warnings = [*notes(summary, plain, datasets), *of_paths, unprobed(made, plain, datasets)]
    warnings += read_remarks(files.asked, files.answers, models=models, datasets=datasets)
    with atomic(target) as path:
        sentences = {models[name]: sentence for name, sentence in claims["bottom_line"].items()}
        html = page(opening_section(pictures, sentences), filter(None, warnings), sections)
        path.write_text(html, encoding="utf-8")
