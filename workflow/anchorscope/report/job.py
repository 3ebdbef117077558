"""The report stage from files to the page."""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.draw.style import read_style
from anchorscope.draw.view import View
from anchorscope.experiments.catalogue import EXPERIMENTS
from anchorscope.extract.axes import Headline
from anchorscope.files.atomic import write_text
from anchorscope.files.frames import read_frame
from anchorscope.files.identity import read_json
from anchorscope.files.sealed_parquet import made_from
from anchorscope.report.chart import chart_section, family_chart
from anchorscope.report.claims import claims_section, experiment_verdicts
from anchorscope.report.detection import detection_section
from anchorscope.report.examples import Answers, examples_section, read_examples
from anchorscope.report.experiments import experiment_section
from anchorscope.report.figures import (
    Link,
    Picture,
    by_set,
    figures_section,
    files_section,
    honest_section,
    make_pictures,
)
from anchorscope.report.findings import (
    anchor_counts,
    answer_counts,
    best_methods,
    deepest_falls,
    honest_gaps,
    machines,
    probe_areas,
    survivals,
    verdict_counts,
)
from anchorscope.report.opening import opening_section
from anchorscope.report.page import Section, page
from anchorscope.report.survives import survives_section
from anchorscope.report.tables import Titles, numbers_section, provenance_section
from anchorscope.summarise.counts import by_pair
from anchorscope.summarise.wording import coarse_roundings, mark_random, notes, plain_paths, unprobed

Files = Mapping[str, Any]  # by name: a path, or a list of paths


def write_report(
    files: Files,
    target: Path | str,
    *,
    plain: Titles,
    datasets: Titles,
    figures: Mapping[str, list[str]],
    headline: Headline,
    outputs: list[str],
) -> None:
    """Write the page; titles of models with random weights say so, other than the `plain` ones of all models.

    `figures` has the models of each set of figures, `outputs` every file of the run.
    """
    claims = with_titles(read_json(files["claims"]), datasets)
    models = mark_random(plain, claims["weights"])
    sets = {name: " · ".join(models[one] for one in some) for name, some in figures.items()}
    pictures = make_pictures(by_set(files["figures"]), sets, target)
    summary = read_frame(files["summary"]).filter(pl.col("model").is_in(list(plain)))  # without salmons
    view = View(plain, datasets, headline=headline, style=read_style(files["style"]))
    chart = None if summary.is_empty() else family_chart(summary, view)
    found = {name: read_frame(files[name]) for name in ("text", "layers", "series", "strata", "forms", "label_errors")}
    # Names of models and datasets are texts even where they look like numbers.
    texts = {"model": pl.String, "dataset": pl.String}
    counts = {name: pl.read_csv(files[name], schema_overrides=texts) for name in ("examples", "questions")}
    answers = by_pair(files["answers"], list(product(models, datasets)))
    delta = dict(zip(answers, files["delta"], strict=True))
    examples = read_examples(files["deepest"], delta, answers, models=models, datasets=datasets, headline=headline)
    made_by = read_json(files["provenance"])
    drawn = [picture for of_set in pictures.values() for picture in of_set]
    sections = [
        Section(
            "The honest gap",
            honest_section(drawn, claims["bottom_line"], models),
            honest_gaps(claims["numbers"], claims["bottom_line"], models),
        ),
        Section("Claims", claims_section(claims, models, datasets), verdict_counts(claims["claims"], models)),
        Section(
            "What survives",
            survives_section(found, headline, models, datasets),
            survivals(found, claims["one_mechanism"], headline, models),
        ),
        Section("ΔP by layer", chart_section(chart, view.style), deepest_falls(summary, headline, models, datasets)),
        Section("Explore an example", examples_section(examples), anchor_counts(examples)),
        Section("Figures", figures_section(pictures), probe_areas(found["layers"], headline, models)),
        *experiment_sections(files, drawn, claims, models=models, datasets=datasets),
        *detection_sections(files, sets, models=models, datasets=datasets, page=target),
        Section(
            "Numbers",
            numbers_section(found | counts, summary, headline, models, datasets),
            answer_counts(counts["examples"], models),
        ),
        Section(
            "What made it",
            provenance_section(made_by, models, datasets, file=Link.to(files["provenance"], target)),
            machines(made_by, models),
        ),
        Section("Files", files_section(outputs, target)),
    ]
    made = made_from(files["summary"])
    warnings = [
        *notes(summary, plain, datasets),
        *plain_paths(made, models),
        *coarse_roundings(made, models),
        unprobed(made, plain, datasets),
        *page_remarks(files["asked"], answers, models=models, datasets=datasets),
    ]
    opening = opening_section(
        claims["numbers"], claims["bottom_line"], models, datasets, pictures=drawn, notes=list(filter(None, warnings))
    )
    write_text(target, page(opening, sections))


def with_titles(claims: dict, datasets: Titles) -> dict:
    """What claims.json says, with titles in its sentences in place of the datasets' names between backticks."""

    def titled(sentence: str) -> str:
        return re.sub("`([^`]+)`", lambda name: datasets.get(name[1], name[1]), sentence)

    numbers = {
        model: {**own, "warnings": list(map(titled, own["warnings"]))} for model, own in claims["numbers"].items()
    }
    lines = {model: titled(line) for model, line in claims["bottom_line"].items()}
    return {**claims, "numbers": numbers, "bottom_line": lines}


def experiment_sections(
    files: Files, drawn: list[Picture], claims: dict, models: Titles, datasets: Titles
) -> list[Section]:
    """A section for each experiment that was run."""
    return [
        Section(
            experiment.title,
            experiment_section(
                name,
                read_frame(files[name]),
                pictures=[picture for picture in drawn if picture.kind.name == name],
                models=models,
                datasets=datasets,
            ),
            [experiment_verdicts(experiment.claim, claims["claims"], models)],
        )
        for name, experiment in EXPERIMENTS.items()
        if name in files
    ]


def detection_sections(files: Files, sets: Titles, models: Titles, datasets: Titles, page: Path | str) -> list[Section]:
    """The section on detection, where methods were compared; `sets` has the models' titles of each set of figures."""
    if not files["detection"]:
        return []
    pictures = make_pictures(by_set(files["detection_figures"]), sets, page)
    tables = {Path(path).stem: read_frame(path) for path in files["detection"]}
    section = detection_section(
        tables,
        pictures=[picture for of_set in pictures.values() for picture in of_set],
        models=models,
        datasets=datasets,
        files=[Link.to(path, page) for path in files["detection"]],
        detectors=[Link.to(path, page) for path in files["detectors"]],
    )
    return [Section("Detection", section, best_methods(tables["detection"], models))]


def page_remarks(questions: list[str], answers: Answers, models: Titles, datasets: Titles) -> list[str]:
    """What was found odd about most questions of a dataset, or about most answers of a model."""
    asked = [
        f"{title}: {remark}"
        for title, path in zip(datasets.values(), questions, strict=True)
        for remark in made_from(path)["remarks"]
    ]
    return asked + [
        f"{models[model]} on {datasets[dataset]}: {remark}"
        for (model, dataset), own in answers.items()
        for remark in dict.fromkeys(remark for path in own for remark in made_from(path)["remarks"])
    ]
