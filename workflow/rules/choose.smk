# Examples: which answers are analysed.
# In:  results/answers/{model}/{dataset}/{shard}.parquet
# Out: results/chosen/{model}/{dataset}/{shard}.parquet


rule choose:
    """Leave out refusals, and as many answers as it takes for as many right as wrong ones."""
    input:
        "results/answers/{model}/{dataset}/{shard}.parquet",
    output:
        "results/chosen/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/choose/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/choose/{model}/{dataset}/{shard}.tsv"
    priority: 3  # extraction waits for it
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        balance=config["balance"],
        seed=config["seed"],
        code=code("choose.py"),
    script:
        "../../scripts/choose.py"
