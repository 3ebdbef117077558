# Report: everything a run shows, on one page.
# In:  results/summary.parquet, results/claims.json, results/examples.csv, results/figures/*/*.png, results/models/*.json
# Out: results/report.html
#      results/provenance.json   settings, code, models, datasets and libraries that made the run


rule report:
    """Put figures, tables and settings on one self-contained page."""
    input:
        summary="results/summary.parquet",
        claims="results/claims.json",
        examples="results/examples.csv",
        figures=figure_files(FIGURES, widths=[""], formats=["png"]),
    output:
        report("results/report.html", caption="../report/page.rst", category="Report"),
    log:
        "results/logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "../../envs/draw.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        config=settings(),
        code=code("report.py"),
    script:
        "../../scripts/report.py"


rule provenance:
    """Write down what made this run."""
    input:
        local(expand("results/models/{model}.json", model=MODELS)),
    output:
        "results/provenance.json",
    log:
        "results/logs/provenance.log",
    benchmark:
        "results/benchmarks/provenance.tsv"
    conda:
        "../../envs/model.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        config=settings(),
        fingerprints=canonical_json(
            {script.stem: code(script.name) for script in sorted((ROOT / "scripts").glob("*.py"))}
        ),
        origins=lambda wildcards: canonical_json({name: origin(name) for name in DATASETS}),
        libraries=locked(*VERSIONED),
        code=code("provenance.py"),
    script:
        "../../scripts/provenance.py"
