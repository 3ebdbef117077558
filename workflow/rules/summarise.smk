# Estimates: group means with intervals for every model and dataset, what each curve comes to, and the claims.
# In:  results/delta/…, results/layers/…, results/label_errors/…, results/text/…, results/chosen/…, results/questions/…
# Out: results/estimates/{model}/{dataset}/*.parquet   all estimates of one model on one dataset
#      results/{summary,series,kinds,accounts,told_apart,strata,forms,label_errors,deepest,layers,text}.parquet and .csv   those of all models and datasets
#      results/claims.json and .md   the claims, each with its verdict, and the published landmarks
#      results/examples.csv, results/questions.csv   how many answers and questions were kept or left out, and why


rule estimate:
    """Average delta P over each anchor's examples, with bootstrap intervals, and look for two kinds of examples."""
    input:
        delta="results/delta/{model}/{dataset}.parquet",
        layers="results/layers/{model}/{dataset}.parquet",
        label_errors="results/label_errors/{model}/{dataset}.parquet",
    output:
        **{table: f"results/estimates/{{model}}/{{dataset}}/{table}.parquet" for table in ESTIMATES},
    log:
        "results/logs/estimate/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/estimate/{model}/{dataset}.tsv"
    wildcard_constraints:
        model=one_of([*MODELS, *SALMONS]),
    conda:
        "../../envs/data.yaml"
    threads: ESTIMATING
    resources:
        mem_mb=by_size(45),  # of 53 MB of delta table, with 11,000 examples, it takes 3.4 GB
        runtime=grows(60),
    params:
        headline=HEADLINE,
        bootstrap_draws=config["bootstrap_draws"],
        seed=config["seed"],
        code=code("estimate.py"),
    script:
        "../../scripts/estimate.py"


rule weigh_kinds:
    """Weigh four accounts of what the knockout does to examples: two kinds of them, degrees, both or neither."""
    input:
        delta="results/delta/{model}/{dataset}.parquet",
        answers=chosen_of,
    output:
        **{table: f"results/estimates/{{model}}/{{dataset}}/{table}.parquet" for table in WEIGHED},
    log:
        "results/logs/weigh_kinds/{model}/{dataset}.log",
    benchmark:
        "results/benchmarks/weigh_kinds/{model}/{dataset}.tsv"
    wildcard_constraints:
        model=one_of([*MODELS, *SALMONS]),
    conda:
        "../../envs/probe.yaml"
    threads: WEIGHING  # processes
    resources:
        mem_mb=grows(4000 + 400 * WEIGHING),
        runtime=grows(60),
    params:
        headline=HEADLINE,
        bootstrap_draws=config["bootstrap_draws"],
        seed=config["seed"],
        libraries=locked("torch", "numpy"),
        code=code("weigh_kinds.py"),
    script:
        "../../scripts/weigh_kinds.py"


rule summarise:
    """Put all estimates into one table per kind, and judge the claims."""
    input:
        **{
            table: with_salmons(f"results/estimates/{{model}}/{{dataset}}/{table}.parquet")
            for table in [*ESTIMATES, *WEIGHED]
        },
        **{experiment: estimates_of(experiment, PAIRS) for experiment in EXPERIMENTS},
        layers=with_salmons("results/layers/{model}/{dataset}.parquet"),
        text=expand("results/text/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        landmarks=local(ancient(str(LANDMARKS))),
    output:
        **{table: f"results/{table}.parquet" for table in TABLES},
        **{f"{table}_csv": f"results/{table}.csv" for table in TABLES},
        claims="results/claims.json",
        claims_page=report("results/claims.md", caption="../report/claims.rst", category="Claims"),
    log:
        "results/logs/summarise.log",
    benchmark:
        "results/benchmarks/summarise.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(60),
    params:
        pairs=canonical_json(PAIRS),
        salmons=lambda wildcards: canonical_json(salmon_pairs()),
        families=canonical_json(families()),
        layouts=of_datasets("layout"),
        sources=of_datasets("source"),
        headline=HEADLINE,
        published=sha256_of_file(LANDMARKS),
        code=code("summarise.py"),
    script:
        "../../scripts/summarise.py"


rule count_examples:
    """Count questions and answers, kept and left out, by reason."""
    input:
        questions=expand("results/questions/{dataset}.parquet", dataset=DATASETS),
        chosen=shard_files("chosen"),
    output:
        examples=report("results/examples.csv", caption="../report/examples.rst", category="Counts"),
        questions=report("results/questions.csv", caption="../report/questions.rst", category="Counts"),
    log:
        "results/logs/count_examples.log",
    benchmark:
        "results/benchmarks/count_examples.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        pairs=canonical_json(PAIRS),
        datasets=canonical_json(list(DATASETS)),
        code=code("count_examples.py"),
    script:
        "../../scripts/count_examples.py"
