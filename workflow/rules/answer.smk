# Answers: what the model says, whether it is right, and where in it the exact answer is.
# In:  results/questions/{dataset}.parquet, results/models/{model}.json
# Out: results/answers/{model}/{dataset}/{shard}.parquet
#      results/unsure/{model}/{dataset}/{shard}.parquet   the same questions under a prompt that offers "I don't know"


rule answer:
    """Ask the model a shard of questions and grade its answers."""
    input:
        questions="results/questions/{dataset}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        "results/answers/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/answer/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/answer/{model}/{dataset}/{shard}.tsv"
    priority: 2  # extraction waits for it
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=model_memory,
        gpu=lambda wildcards: MODELS[wildcards.model]["gpus"],
        runtime=grows(240),
    params:
        rows=shard_slice,
        # Answers are generated under the first prompt; the second cannot change them.
        prompts=lambda wildcards: prompt_of(wildcards, ["first"]),
        dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
        batch_tokens=config.get("batch_tokens"),
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("answer.py"),
    script:
        "../../scripts/answer.py"


rule ask_unsure:
    """Ask the same questions again under a prompt that offers "I don't know", for the knowledge boundary."""
    input:
        questions="results/questions/{dataset}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        "results/unsure/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/ask_unsure/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/ask_unsure/{model}/{dataset}/{shard}.tsv"
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=model_memory,
        gpu=lambda wildcards: MODELS[wildcards.model]["gpus"],
        runtime=grows(240),
    params:
        rows=shard_slice,
        prompts=lambda wildcards: prompt_of(wildcards, ["unsure"]),
        dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
        batch_tokens=config.get("batch_tokens"),
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("answer.py"),
    script:
        "../../scripts/answer.py"
