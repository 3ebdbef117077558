# Detection: the methods side by side, where `detect` was asked for.
# In:  results/detect/scores/{model}/{dataset}.parquet   what every method says of every example, out of fold
#      results/detect/transfer/{model}.parquet           areas between datasets
#      results/models/*.json, the published numbers, the style file
# Out: results/{detection,transfer,reliability,coverage,pathways}.parquet and .csv
#      results/figures/{figure}/{detection,transfer,reliability}.png, .pdf, .svg, and _column


rule compare_methods:
    """Compare the methods of detection: areas, gains over the plain probe, calibration, risk, and pathways."""
    input:
        scores=expand("results/detect/scores/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        transfer=expand("results/detect/transfer/{model}.parquet", model=MODELS),
        manifests=local(expand("results/models/{model}.json", model=MODELS)),
        landmarks=local(ancient(str(LANDMARKS))),
    output:
        **{table: f"results/{table}.parquet" for table in DETECTION_TABLES},
        **{f"{table}_csv": f"results/{table}.csv" for table in DETECTION_TABLES},
    log:
        "results/logs/compare_methods.log",
    benchmark:
        "results/benchmarks/compare_methods.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(30),
    params:
        pairs=canonical_json(PAIRS),
        layouts=of_datasets("layout"),
        sources=of_datasets("source"),
        published=sha256_of_file(LANDMARKS),
        code=code("compare_methods.py"),
    script:
        "../../scripts/compare_methods.py"


use rule draw as draw_detection with:
    input:
        **{table: f"results/{table}.parquet" for table in DETECTION_TABLES},
        style=local(ancient(str(STYLE))),
    output:
        **{f"{kind}{width}": drawn(kind, width) for kind in DETECTION_DRAWN for width in WIDTHS},
    log:
        "results/logs/draw_detection/{figure}.log",
    benchmark:
        "results/benchmarks/draw_detection/{figure}.tsv"
    threads: min(len(DETECTION_DRAWN) * len(WIDTHS), CORES or 1)
