# Summary: group means with intervals, for every model and dataset.
# In:  results/delta/…, results/layers/…, results/answers/…, results/activations/…, results/questions/…
# Out: results/summary.parquet and .csv     one row a series and layer
#      results/examples.csv                 how many questions and answers were kept or left out, and why


rule summarise:
    """Average delta P over each anchor's examples, with bootstrap intervals."""
    input:
        delta=expand("results/delta/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        layers=expand("results/layers/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
    output:
        parquet="results/summary.parquet",
        csv="results/summary.csv",
    log:
        "results/logs/summarise.log",
    benchmark:
        "results/benchmarks/summarise.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=4000,
        runtime=60,
    params:
        pairs=canonical_json([[model, dataset] for model in MODELS for dataset in DATASETS]),
        draws=config["bootstrap_draws"],
        seed=config["seed"],
        code=code("summarise.py"),
    script:
        "../../scripts/summarise.py"


rule count_examples:
    """Count questions and answers, kept and left out, by reason."""
    input:
        questions=expand("results/questions/{dataset}.parquet", dataset=DATASETS),
        answers=expand(
            "results/answers/{model}/{dataset}/{shard}.parquet",
            model=MODELS,
            dataset=DATASETS,
            shard=SHARDS,
        ),
        activations=expand(
            "results/activations/{model}/{dataset}/{shard}.parquet",
            model=MODELS,
            dataset=DATASETS,
            shard=SHARDS,
        ),
    output:
        "results/examples.csv",
    log:
        "results/logs/count_examples.log",
    benchmark:
        "results/benchmarks/count_examples.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        pairs=canonical_json([[model, dataset] for model in MODELS for dataset in DATASETS]),
        datasets=canonical_json(list(DATASETS)),
        code=code("count_examples.py"),
    script:
        "../../scripts/count_examples.py"
