# Saliency: how much of a verdict flows from the question's words to the answer, by attention times gradient.
# In:  results/activations/{model}/{dataset}/*/{headline}.parquet, results/answers/{model}/{dataset}/*.parquet,
#      results/layers/{model}/{dataset}.parquet, results/probes/{model}/{dataset}/{headline}.parquet, results/models/{model}.json
# Out: results/experiments/saliency/{model}/{dataset}.parquet


rule saliency:
    """Measure the flow from exact question words, and from as many other words, to the answer."""
    input:
        activations=activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
        answers=all_answers_of,
        layers="results/layers/{model}/{dataset}.parquet",
        probes=kept_probes(HEADLINE_PLACE),
        manifest=local("results/models/{model}.json"),
    output:
        SALIENCY,
    log:
        "results/logs/saliency/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/saliency/{model}/{dataset}.tsv"
    wildcard_constraints:
        model=one_of([*MODELS, *SALMONS]),
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
        folds=config["folds"],
        seed=config["seed"],
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("saliency.py"),
    script:
        "../../scripts/saliency.py"
