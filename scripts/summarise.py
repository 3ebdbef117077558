"""Put the estimates of all models and datasets into one table per kind, and judge the claims.

Writes summary, series, kinds, accounts, told_apart, strata, forms, label_errors, deepest, layers and text as Parquet
and as CSV, and the claims as JSON and as a page. A model and dataset that could not be probed are left out, and named
in the metadata and on the page. Salmons stand behind all others in the tables, and no claim is about them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from anchorscope.experiments import NAMES
from anchorscope.experiments.gather import judge_all
from anchorscope.extract.axes import Headline
from anchorscope.files.atomic import atomic
from anchorscope.files.logs import configure_logging
from anchorscope.files.provenance import provenance
from anchorscope.summarise.claims_page import claims_page
from anchorscope.summarise.findings import Comparison, find
from anchorscope.summarise.headline import at_headline
from anchorscope.summarise.tables import gather, read_coverage, write_tables

if TYPE_CHECKING:
    from snakemake.script import snakemake


def read_comparison(landmarks: str, families: str, layouts: str) -> Comparison:
    """What the run is compared with, from the file of published landmarks and two parameters in JSON."""
    published = yaml.safe_load(Path(landmarks).read_text(encoding="utf-8"))
    return Comparison(json.loads(families), json.loads(layouts), published)


def write_text(path: str, text: str) -> None:
    with atomic(path) as target:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params, files, outputs = snakemake.params, snakemake.input, snakemake.output
    pairs, salmons = json.loads(params.pairs), json.loads(params.salmons)
    coverage = read_coverage(pairs + salmons, files.summary)
    tables = gather(coverage, files=files, sources=json.loads(params.sources))
    write_tables(tables, outputs, provenance(stage="summarise", code=params.code, **coverage.metadata()))
    judged = coverage.first(len(pairs))
    headline = Headline(**json.loads(params.headline))
    findings = find(
        tables,
        resampled=judged.files_of_probed(files.resampled[: len(pairs)]),
        headline=headline,
        coverage=judged,
        comparison=read_comparison(files.landmarks, params.families, params.layouts),
    )
    others = judge_all(
        {name: paths for name, paths in files.items() if name in NAMES},
        pairs=judged.pairs,
        probed=judged.probed(),
        layers=at_headline(tables["layers"], headline),
    )
    findings = replace(findings, claims=findings.claims + others)
    write_text(outputs.claims, findings.to_json())
    write_text(outputs.claims_page, claims_page(findings))
