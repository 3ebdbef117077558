# Report: everything a run shows, on one page.
# In:  results/summary.parquet, results/claims.json, results/examples.csv, results/figures/*.png
# Out: results/report.html


rule report:
    """Put figures, tables and settings on one self-contained page."""
    input:
        summary="results/summary.parquet",
        claims="results/claims.json",
        examples="results/examples.csv",
        figures=expand("results/figures/{figure}.png", figure=FIGURES),
    output:
        "results/report.html",
    log:
        "results/logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "../../envs/draw.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        config=canonical_json(config),
        bundled=canonical_json(bundled_titles()),
        window=config.get("window"),
        code=code("report.py"),
    script:
        "../../scripts/report.py"
