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
        **MODEL_RESOURCES,
    params:
        **model_params(["first"]),  # the second cannot change answers
        rows=shard_slice,
        code=code("answer.py"),
    script:
        "../../scripts/answer.py"


# The same questions under a prompt that offers "I don't know", for the knowledge boundary.
use rule answer as ask_unsure with:
    output:
        "results/unsure/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/ask_unsure/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/ask_unsure/{model}/{dataset}/{shard}.tsv"
    priority: 0  # only estimates wait for it
    params:
        prompts=lambda wildcards: prompt_of(wildcards, ["unsure"]),
