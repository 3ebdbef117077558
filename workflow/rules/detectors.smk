# Detectors to take away: the headline's probes of every layer, trained on all examples of a model.
# In:  results/activations/{model}/*/*/{headline}.parquet, results/models/{model}.json
# Out: results/detectors/{model}.safetensors, results/detectors/{model}.md   the detector, and its card


rule train_detector:
    """Train a model's detector on all datasets together, and describe it on a card."""
    input:
        activations=activation_files("{model}", DATASETS, SHARDS, places=[HEADLINE_PLACE], ends=[added(EXACT)]),
        manifest=local("results/models/{model}.json"),
    output:
        detector="results/detectors/{model}.safetensors",
        card="results/detectors/{model}.md",
    log:
        "results/logs/train_detector/{model}.log",
    benchmark:
        "results/benchmarks/train_detector/{model}.tsv"
    priority: 1  # longer than a dataset's scores; drawing, for which it would be too late, takes all cores
    conda:
        "../../envs/probe.yaml"
    threads: THREADS
    resources:
        mem_mb=grows(4000),
        gpu=min(1, gpu_count()),
        runtime=grows(120),
    params:
        headline=HEADLINE,
        folds=config["folds"],
        seed=config["seed"],
        datasets=canonical_json(list(DATASETS)),
        sources=of_datasets("source"),
        libraries=locked("torch", "numpy"),
        code=code("train_detector.py"),
    script:
        "../../scripts/train_detector.py"
