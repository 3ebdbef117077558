# Figures: every kind for each set of models that the config names, one panel per model.
# In:  results/{summary,layers,deepest,accounts}.parquet, results/{experiment}.parquet, the style file
# Out: results/figures/{figure}/{kind}.png, .pdf, .svg          as wide as a page
#      results/figures/{figure}/{kind}_column.png, .pdf, .svg   as wide as a column


rule draw:
    """Draw every kind of figure for one set of models."""
    input:
        **{experiment: f"results/{experiment}.parquet" for experiment in EXPERIMENTS},
        summary="results/summary.parquet",
        layers="results/layers.parquet",
        deepest="results/deepest.parquet",
        accounts="results/accounts.parquet",
        style=local(ancient(str(STYLE))),
    output:
        **{f"{kind}{width}": drawn(kind, width) for kind in KINDS_DRAWN for width in WIDTHS},
    log:
        "results/logs/draw/{figure}.log",
    benchmark:
        "results/benchmarks/draw/{figure}.tsv"
    conda:
        "../../envs/draw.yaml"
    # A figure takes a second or two, and all of them are wanted at once.
    threads: min(len(KINDS_DRAWN) * len(WIDTHS), CORES or 1)
    resources:
        mem_mb=grows(4000),
        runtime=grows(20),
    params:
        models=lambda wildcards: canonical_json(
            [[name, MODELS[name]["title"]] for name in FIGURES[wildcards.figure]["models"]]
        ),
        datasets=canonical_json([[name, dataset["title"]] for name, dataset in DATASETS.items()]),
        headline=HEADLINE,
        style=sha256_of_file(STYLE),
        libraries=locked("matplotlib", "seaborn"),
        code=code("draw.py"),
    script:
        "../../scripts/draw.py"
