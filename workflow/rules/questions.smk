# Questions: from published rows to one table.
# In:  a bundled file, a local file or a hub dataset (config: datasets).
# Out: results/raw/{dataset}.parquet            rows and columns as published
#      results/questions/{dataset}.parquet      id, question, gold, subject, property, popularity, question_form, spans


rule fetch_questions:
    """Fetch a dataset's rows as they were published."""
    input:
        lambda wildcards: raw_file(wildcards.dataset),
    output:
        "results/raw/{dataset}.parquet",
    log:
        "results/logs/fetch_questions/{dataset}.log",
    benchmark:
        "results/benchmarks/fetch_questions/{dataset}.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(60),
    params:
        origin=lambda wildcards: canonical_json(origin(wildcards.dataset)),
        code=code("fetch_questions.py"),
    script:
        "../../scripts/fetch_questions.py"


rule normalize:
    """Turn a dataset's rows into questions with accepted answers and exact question words."""
    input:
        "results/raw/{dataset}.parquet",
    output:
        "results/questions/{dataset}.parquet",
    log:
        "results/logs/normalize/{dataset}.log",
    benchmark:
        "results/benchmarks/normalize/{dataset}.tsv"
    conda:
        "../../envs/data.yaml"
    resources:
        mem_mb=grows(2000),
        runtime=grows(20),
    params:
        # What messages call the file. Snakemake does not compare a param that takes `output`: a file that moves reruns nothing.
        where=lambda wildcards, output: DATASETS[wildcards.dataset].get("path", f"dataset {wildcards.dataset}"),
        layout=lambda wildcards: DATASETS[wildcards.dataset]["layout"],
        seed=config["seed"],
        code=code("normalize.py"),
    script:
        "../../scripts/normalize.py"
