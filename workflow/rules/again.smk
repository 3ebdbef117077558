# What else the model does with the chosen examples: when it is asked about its answers or shifts its attention, and
# when it is asked the questions several times.
# In:  results/chosen/{model}/{dataset}/{shard}.parquet, results/detect/gates/{model}/{dataset}.parquet,
#      results/models/{model}.json
# Out: results/asked/{model}/{dataset}/{shard}.parquet        whether its answers are true, and how sure it is
#      results/reweighted/{model}/{dataset}/{shard}.parquet   states under attention shifted towards a gate's pathway
#      results/samples/{model}/{dataset}/{shard}.parquet      several answers to each question, for `samples`


rule run_again:
    """Ask the model about its chosen answers of a shard, and run them under every gate and amount of shifted attention."""
    input:
        chosen="results/chosen/{model}/{dataset}/{shard}.parquet",
        gates="results/detect/gates/{model}/{dataset}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        asked="results/asked/{model}/{dataset}/{shard}.parquet",
        reweighted="results/reweighted/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/run_again/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/run_again/{model}/{dataset}/{shard}.tsv"
    priority: 2  # long jobs first, so that no core waits for the last of them at the end
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        **MODEL_RESOURCES,
    params:
        **model_params(["first"]),
        headline=HEADLINE,
        about=lambda wildcards: prompt_of(wildcards, ["about_header", "about_shots", "about_true", "about_sure"]),
        code=code("run_again.py"),
    script:
        "../../scripts/run_again.py"


if "samples" in config:

    rule sample_answers:
        """Ask the questions of a shard's chosen examples again, several times each, at temperature 1."""
        input:
            chosen="results/chosen/{model}/{dataset}/{shard}.parquet",
            manifest=local("results/models/{model}.json"),
        output:
            "results/samples/{model}/{dataset}/{shard}.parquet",
        log:
            "results/logs/sample_answers/{model}/{dataset}/{shard}.log",
        benchmark:
            "results/benchmarks/sample_answers/{model}/{dataset}/{shard}.tsv"
        priority: 2
        conda:
            "../../envs/model.yaml"
        threads: MODEL_THREADS
        resources:
            **MODEL_RESOURCES,
        params:
            **model_params(["first"]),
            samples=config["samples"],
            code=code("sample_answers.py"),
        script:
            "../../scripts/sample_answers.py"
