# The other experiments, where the config names them: what each shows under both groupings.
# In:  results/delta/…, results/layers/…, results/probes/…, results/activations/…, results/chosen/…, results/unsure/…,
#      results/experiments/saliency/{model}/{dataset}.parquet       how much of a verdict flows from the question
# Out: results/experiments/{patching,answer_only}/{model}/{dataset}.parquet   what the probes say where tokens were replaced
#      results/experiments/awareness/{model}/{dataset}.parquet      what readers of clean states say of the groups
#      results/experiments/{experiment}/{model}/{dataset}.estimates.parquet
#      results/{experiment}.parquet and .csv   the estimates of all models and datasets


rule score_experiment:
    """Score an experiment's passes with the probes of the main run, out of fold."""
    input:
        activations=[
            *replaced_files("{model}", "{dataset}", SHARDS, experiments=["{experiment}"]),
            *activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
        ],
        probes=kept_probes(HEADLINE_PLACE),
    output:
        MEASURED,
    log:
        "results/logs/score_experiment/{experiment}/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/score_experiment/{experiment}/{model}/{dataset}.tsv"
    wildcard_constraints:
        experiment=one_of(REPLACING),
    priority: 2  # its estimates are the longest of all
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=by_size(1.5),
        gpu=min(1, gpu_count()),
        runtime=grows(120),
    params:
        headline=HEADLINE,
        folds=config["folds"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("score_experiment.py"),
    script:
        "../../scripts/score_experiment.py"


rule tell_groups:
    """Fit readers of clean states, and of clean logits alone, that tell which group an example is in."""
    input:
        delta="results/delta/{model}/{dataset}.parquet",
        activations=activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
    output:
        "results/experiments/awareness/{model}/{dataset}.parquet",
    log:
        "results/logs/tell_groups/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/tell_groups/{model}/{dataset}.tsv"
    priority: 3  # needs cores but no GPU; later, jobs that wait for a GPU hold the cores
    conda:
        "../../envs/probe.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=grows(4000),
        runtime=grows(120),
    params:
        headline=HEADLINE,
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("tell_groups.py"),
    script:
        "../../scripts/tell_groups.py"


rule estimate_experiment:
    """Estimate what an experiment shows of one model on one dataset, with bootstrap intervals."""
    input:
        unpack(measured_by),
        delta="results/delta/{model}/{dataset}.parquet",
        layers="results/layers/{model}/{dataset}.parquet",
    output:
        ESTIMATED,
    log:
        "results/logs/estimate_experiment/{experiment}/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/estimate_experiment/{experiment}/{model}/{dataset}.tsv"
    wildcard_constraints:
        experiment=one_of(READS),
        model=one_of([*MODELS, *SALMONS]),
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        headline=HEADLINE,
        bootstrap_draws=config["bootstrap_draws"],
        seed=config["seed"],
        code=code("estimate_experiment.py"),
    script:
        "../../scripts/estimate_experiment.py"


rule summarise_experiments:
    """Put an experiment's estimates of all models and datasets into one table."""
    input:
        lambda wildcards: estimates_of(wildcards.experiment, PAIRS + experiment_salmons(wildcards)),
    output:
        table="results/{experiment}.parquet",
        csv="results/{experiment}.csv",
    log:
        "results/logs/summarise_experiments/{experiment}.log",
    benchmark:
        "results/benchmarks/summarise_experiments/{experiment}.tsv"
    wildcard_constraints:
        experiment=one_of(READS),
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(30),
    params:
        pairs=lambda wildcards: canonical_json(PAIRS + experiment_salmons(wildcards)),
        sources=of_datasets("source"),
        code=code("summarise_experiments.py"),
    script:
        "../../scripts/summarise_experiments.py"
