# Saliency: how much of a verdict flows from the question's words to the answer, by attention times gradient.
# In:  results/activations/{model}/{dataset}/*/{headline}.parquet, results/chosen/{model}/{dataset}/*.parquet,
#      results/layers/{model}/{dataset}.parquet, results/probes/{model}/{dataset}/{headline}.parquet,
#      results/models/{model}.json
# Out: results/experiments/saliency/{model}/{dataset}.parquet


rule saliency:
    """Measure the flow from exact question words, and from as many other words, to the answer."""
    input:
        activations=activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
        chosen=chosen_of,
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
        **MODEL_RESOURCES,
    params:
        **model_params(["first"]),
        headline=HEADLINE,
        folds=config["folds"],
        seed=config["seed"],
        code=code("saliency.py"),
    script:
        "../../scripts/saliency.py"
