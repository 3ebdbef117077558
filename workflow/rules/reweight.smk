# Pathway Reweighting: states under attention that is shifted towards the pathway that a gate predicts.
# In:  results/answers/{model}/{dataset}/{shard}.parquet, results/detect/gates/{model}/{dataset}.parquet,
#      results/models/{model}.json
# Out: results/reweighted/{model}/{dataset}/{shard}.parquet


rule reweight:
    """Run a shard's answers under every gate and amount, and keep the state that is probed."""
    input:
        answers=answers_of,
        gates="results/detect/gates/{model}/{dataset}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        "results/reweighted/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/reweight/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/reweight/{model}/{dataset}/{shard}.tsv"
    priority: 1  # long jobs first, so that no core waits for the last of them at the end
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=model_memory,
        gpu=lambda wildcards: own_settings(wildcards)["gpus"],
        runtime=grows(240),
    params:
        headline=canonical_json(config["headline"]),
        prompts=lambda wildcards: prompt_of(wildcards, ["first"]),
        dtype=lambda wildcards: own_settings(wildcards)["dtype"],
        batch_tokens=config.get("batch_tokens"),
        balance=config["balance"],
        seed=config["seed"],
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("reweight.py"),
    script:
        "../../scripts/reweight.py"
