# Detection methods: what each says of every example, and how well it carries over to other datasets.
# In:  results/activations/…, results/answers/…, results/asked/…, results/samples/…, results/reweighted/…,
#      results/probes/{model}/{dataset}/{headline}.parquet
# Out: results/detect/gates/{model}/{dataset}.parquet    how likely each example is Question-Anchored, out of fold
#      results/detect/scores/{model}/{dataset}.parquet   what every method says, out of fold
#      results/detect/transfer/{model}.parquet           areas of methods that learnt from one dataset, on another


rule fit_gates:
    """Fit the gates of Pathway Reweighting, out of fold."""
    input:
        activation_files("{model}", "{dataset}", SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
    output:
        "results/detect/gates/{model}/{dataset}.parquet",
    log:
        "results/logs/fit_gates/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/fit_gates/{model}/{dataset}.tsv"
    priority: 2  # long jobs wait for it
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        headline=HEADLINE,
        folds=config["folds"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("fit_gates.py"),
    script:
        "../../scripts/fit_gates.py"


rule score_methods:
    """Score every example with every method of detection, out of fold."""
    input:
        **read_by_methods(["{dataset}"]),
        probes=kept_probes(HEADLINE_PLACE),
    output:
        "results/detect/scores/{model}/{dataset}.parquet",
    log:
        "results/logs/score_methods/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/score_methods/{model}/{dataset}.tsv"
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=by_size(0.5),
        gpu=min(1, gpu_count()),
        runtime=grows(120),
    params:
        headline=HEADLINE,
        folds=config["folds"],
        seed=config["seed"],
        answer_scores=config["answer_scores"],
        libraries=locked("torch", "numpy"),
        code=code("score_methods.py"),
    script:
        "../../scripts/score_methods.py"


rule carry_over:
    """Measure how well methods that learnt from some datasets do on another one."""
    input:
        **read_by_methods(DATASETS),
    output:
        "results/detect/transfer/{model}.parquet",
    log:
        "results/logs/carry_over/{model}.log",
    benchmark:
        "results/benchmarks/carry_over/{model}.tsv"
    priority: 2  # the longest of its kind
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=by_size(0.5),
        gpu=min(1, gpu_count()),
        runtime=grows(240),
    params:
        headline=HEADLINE,
        datasets=canonical_json(list(DATASETS)),
        folds=config["folds"],
        seed=config["seed"],
        answer_scores=config["answer_scores"],
        libraries=locked("torch", "numpy"),
        code=code("carry_over.py"),
    script:
        "../../scripts/carry_over.py"
