"""The summarise stage from files to files: one table per kind of estimate, and the claims, those on experiments too."""

from collections.abc import Mapping, Sequence

from anchorscope.experiments.catalogue import EVERY_CLAIM, EXPERIMENTS
from anchorscope.experiments.judge import judge_experiments, with_experiments
from anchorscope.extract.axes import Headline
from anchorscope.files.atomic import write_text
from anchorscope.files.sealed_parquet import provenance
from anchorscope.summarise.claims_page import claims_page
from anchorscope.summarise.findings import Comparison, find
from anchorscope.summarise.tables import TABLES, gather, read_coverage, write_tables


def summarise_files(
    files: Mapping[str, Sequence[str]],
    outputs: Mapping[str, str],
    *,
    pairs: list[list[str]],
    salmons: list[list[str]],
    sources: Mapping[str, str],
    headline: Headline,
    comparison: Comparison,
    code: str,
) -> None:
    """Write every table and the claims, from one file per pair for each kind of estimate and each experiment.

    `pairs` are models and datasets. Behind them stand `salmons`, about which there is no claim. `sources` says where
    each dataset comes from.
    """
    coverage = read_coverage(pairs + salmons, files["summary"])
    tables = gather(coverage, files={name: files[name] for name in TABLES}, sources=sources)
    write_tables(tables, outputs, provenance(stage="summarise", code=code, **coverage.metadata()))
    judged = coverage.first(len(pairs))
    findings = find(
        tables,
        resampled=judged.files_of_probed(files["resampled"][: len(pairs)]),
        headline=headline,
        coverage=judged,
        comparison=comparison,
    )
    others = judge_experiments(
        {name: paths for name, paths in files.items() if name in EXPERIMENTS},
        judged,
        tables["layers"].filter(**vars(headline)),
    )
    findings = with_experiments(findings, others)
    write_text(outputs["claims"], findings.to_json())
    write_text(outputs["claims_page"], claims_page(findings, EVERY_CLAIM))
