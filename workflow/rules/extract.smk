# Activations: the config's components and positions, under every intervention, prompt and layer, of the analysed examples.
# In:  results/answers/{model}/{dataset}/{shard}.parquet, results/models/{model}.json
# Out: results/activations/{model}/{dataset}/{shard}/{component}.{position}.parquet


rule extract:
    """Run clean and knocked-out passes over a shard's answers and keep the vectors that are probed."""
    input:
        answers="results/answers/{model}/{dataset}/{shard}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        activation_files("{model}", "{dataset}", "{shard}"),
    log:
        "results/logs/extract/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/extract/{model}/{dataset}/{shard}.tsv"
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=model_memory,
        gpu=lambda wildcards: MODELS[wildcards.model]["gpus"],
        runtime=grows(240),
    params:
        # Snakemake does not compare a param that takes `output`: only missing files lead to a rerun, so that asking for
        # fewer of them reruns nothing.
        grid=lambda wildcards, output: canonical_json([GRID.components, GRID.positions]),
        prompts=lambda wildcards: prompt_of(wildcards, ["first", "second"]),
        dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
        batch_tokens=config.get("batch_tokens"),
        window=config.get("window"),
        balance=config["balance"],
        seed=config["seed"],
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("extract.py"),
    script:
        "../../scripts/extract.py"
