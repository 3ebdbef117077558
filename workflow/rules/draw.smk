# Figures: delta P against layer, one panel a model.
# In:  results/summary.parquet
# Out: results/figures/{figure}.png, .pdf, .svg


rule draw:
    """Draw one figure of the config in three formats."""
    input:
        "results/summary.parquet",
    output:
        expand("results/figures/{{figure}}.{format}", format=FORMATS),
    log:
        "results/logs/draw/{figure}.log",
    benchmark:
        "results/benchmarks/draw/{figure}.tsv"
    conda:
        "../../envs/draw.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        figure=lambda wildcards: canonical_json({**config["headline"], **FIGURES[wildcards.figure]}),
        titles=lambda wildcards: canonical_json([MODELS[name]["title"] for name in FIGURES[wildcards.figure]["models"]]),
        datasets=canonical_json([[name, dataset["title"]] for name, dataset in DATASETS.items()]),
        bundled=canonical_json(bundled_titles()),
        window=config.get("window"),
        libraries=locked("matplotlib", "seaborn"),
        code=code("draw.py"),
    script:
        "../../scripts/draw.py"
