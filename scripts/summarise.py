"""Put the estimates of all models and datasets into one table a kind, and judge the claims.

Writes summary, series, kinds, strata, deepest and layers as Parquet and as CSV, and the claims as JSON and as a page.
A model and dataset that could not be probed are left out, and named in the metadata and on the page.
"""

import json
from itertools import compress
from pathlib import Path

import polars as pl
import yaml

from anchorscope.files.atomic import atomic
from anchorscope.files.frames import read_frame, write_frame
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import made_from
from anchorscope.summarise.claims import STATEMENTS, Run, beside_null, judge_claims, larger_neighbours, read_run
from anchorscope.summarise.claims_page import claims_page
from anchorscope.summarise.landmarks import compare
from anchorscope.summarise.notes import described, notes, unprobed

TABLES = ("summary", "series", "kinds", "strata", "deepest", "layers")


def gather(paths: list[str], about: list[dict]) -> pl.DataFrame:
    """The tables of all models and datasets as one, with what must be known of each to read its numbers."""
    return pl.concat(described(read_frame(path), **known) for path, known in zip(paths, about, strict=True))


def as_text(table: pl.DataFrame) -> pl.DataFrame:
    """A table that CSV can hold: lists as numbers with spaces between them."""
    return table.with_columns(pl.col(pl.List).list.eval(pl.element().cast(pl.String)).list.join(" "))


def published_beside_measured(landmarks: dict, summary: pl.DataFrame, models: dict, layouts: dict) -> list[dict]:
    """Rows for the trained models of this run that the published figures show."""
    rows = []
    for name, manifest in models.items():
        known = landmarks["models"].get(manifest["source"].get("hub"), [])
        flip = summary.filter(model=name, rule="flip", intervention="exact_question")
        rows += [{"model": name, **row} for row in compare(known, landmarks["tolerance"], flip, layouts)]
    return rows


def read_runs(
    pairs: list[tuple[str, str]], resampled: list[str], layers: list[str], headline: pl.DataFrame, place: dict
) -> list[Run]:
    """The curves that claims are about, of every model and dataset that the summary has."""
    return [
        read_run(
            model,
            dataset,
            headline.filter(model=model, dataset=dataset),
            read_frame(drawn),
            read_frame(probes).filter(**place),
        )
        for (model, dataset), drawn, probes in zip(pairs, resampled, layers, strict=True)
    ]


def write_text(path: str, text: str) -> None:
    with atomic(path) as target:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, outputs = snakemake.params, snakemake.input, snakemake.output
    pairs = [tuple(pair) for pair in json.loads(params.pairs)]
    made = [made_from(path) for path in files.summary]
    models = {model: about["model"] for (model, _), about in zip(pairs, made, strict=True)}
    missing = [[*pair, about["not_probed"]] for pair, about in zip(pairs, made, strict=True) if "not_probed" in about]
    if len(missing) == len(pairs):
        raise ValueError(f"Nothing could be probed. {missing[0][-1]}")
    about = {"models": models, "not_probed": missing}
    probed = ["not_probed" not in entry for entry in made]
    shown = list(compress(pairs, probed))
    inputs = {kind: list(compress(files[kind], probed)) for kind in (*TABLES, "resampled")}
    sources = json.loads(params.sources)
    known = [
        {
            "model": model,
            "weights": models[model]["weights"],
            "dataset": dataset,
            "source": sources[dataset],
            "window": params.window,
        }
        for model, dataset in shown
    ]
    tables = {kind: gather(inputs[kind], known) for kind in TABLES}
    for kind, table in tables.items():
        write_frame(outputs[kind], table, provenance(stage="summarise", code=params.code, **about))
        with atomic(outputs[f"{kind}_csv"]) as target:
            as_text(table).write_csv(target, float_precision=6)

    place = {"component": params.component, "position": params.position}
    headline = tables["summary"].filter(**place)
    layouts = json.loads(params.layouts)
    parameters = {name: manifest["parameters"] for name, manifest in models.items()}
    sizes = larger_neighbours(json.loads(params.families), parameters)
    runs = read_runs(shown, inputs["resampled"], inputs["layers"], headline, place)
    claims = judge_claims(runs, sizes)
    landmarks = yaml.safe_load(Path(files.landmarks).read_text(encoding="utf-8"))
    beside = published_beside_measured(landmarks, headline, models, layouts)
    names = [{name: name for name in some} for some in zip(*pairs, strict=True)]
    said = "\n".join(filter(None, [*notes(tables["summary"], *names), unprobed(about, *names)]))
    weights = {name: manifest["weights"] for name, manifest in models.items()}
    null = beside_null(tables["series"].filter(**place), runs)
    everything = {
        "statements": STATEMENTS,
        "claims": claims,
        "one_mechanism": null,
        "landmarks": beside,
        "weights": weights,
        "note": said,
    }
    write_text(outputs.claims, json.dumps(everything, indent=2, ensure_ascii=False) + "\n")
    write_text(outputs.claims_page, claims_page(claims, null, beside, said))
