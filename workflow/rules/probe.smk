# Probes: delta P and anchors of every example, and how good each layer's probe is.
# In:  results/activations/{model}/{dataset}/*/*.parquet, results/chosen/{model}/{dataset}/*.parquet
# Out: results/delta/{model}/{dataset}.parquet, results/layers/{model}/{dataset}.parquet
#      results/label_errors/{model}/{dataset}.parquet   what the headline's probes say if a few labels are wrong
#      results/probes/{model}/{dataset}/{component}.{position}.parquet   the probes
#      results/text/{model}/{dataset}.parquet   what words and lengths alone tell


rule probe:
    """Fit a probe for every layer, component and position, and measure delta P with it, out of fold."""
    input:
        activations=activation_files("{model}", "{dataset}", SHARDS),
        chosen=chosen_of,
    output:
        delta="results/delta/{model}/{dataset}.parquet",
        layers="results/layers/{model}/{dataset}.parquet",
        label_errors="results/label_errors/{model}/{dataset}.parquet",
        probes=list(map(kept_probes, PLACES)),
    log:
        "results/logs/probe/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/probe/{model}/{dataset}.tsv"
    wildcard_constraints:
        model=one_of([*MODELS, *SALMONS]),
    priority: 1  # all estimates wait for it
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=by_size(0.25),
        gpu=min(1, gpu_count()),
        runtime=grows(120),
    params:
        grid=canonical_json([GRID.components, GRID.positions]),
        knockouts=canonical_json(KNOCKOUTS),
        headline=HEADLINE,
        folds=config["folds"],
        repeats=config["repeats"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("probe.py"),
    script:
        "../../scripts/probe.py"


rule read_text:
    """Measure what the text of questions and answers alone tells about the label, beside the probes."""
    input:
        delta="results/delta/{model}/{dataset}.parquet",
        layers="results/layers/{model}/{dataset}.parquet",
        answers=chosen_of,
    output:
        "results/text/{model}/{dataset}.parquet",
    log:
        "results/logs/read_text/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/read_text/{model}/{dataset}.tsv"
    conda:
        "../../envs/probe.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        folds=config["folds"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("read_text.py"),
    script:
        "../../scripts/read_text.py"
