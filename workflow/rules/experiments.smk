# The paper's other experiments, those that the config names.
# In:  results/activations/{model}/{dataset}/*/{component}.{position}.{experiment}.parquet, and the clean ones
# Out: results/experiments/{experiment}/{model}/{dataset}.parquet   what the probes say where tokens were replaced


rule score_experiment:
    """Score an experiment's passes with the probes of the main run, out of fold."""
    input:
        replaced_files("{model}", "{dataset}", SHARDS, experiments=["{experiment}"]),
        activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
    output:
        "results/experiments/{experiment}/{model}/{dataset}.parquet",
    log:
        "results/logs/score_experiment/{experiment}/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/score_experiment/{experiment}/{model}/{dataset}.tsv"
    wildcard_constraints:
        experiment=one_of(REPLACING),
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=lambda wildcards, input, attempt: attempt * max(4000, 2000 + int(1.5 * input.size_mb)),
        gpu=min(1, gpu_count()),
        runtime=grows(120),
    params:
        headline=canonical_json(config["headline"]),
        folds=config["folds"],
        repeats=config["repeats"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("score_experiment.py"),
    script:
        "../../scripts/score_experiment.py"
