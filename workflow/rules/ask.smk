# What else the model says about the analysed examples: of its own answers, and when it is asked again.
# In:  results/answers/{model}/{dataset}/{shard}.parquet, results/models/{model}.json
# Out: results/asked/{model}/{dataset}/{shard}.parquet     whether its answers are true, and how sure it is
#      results/samples/{model}/{dataset}/{shard}.parquet   several answers to each question, where the config has `samples`


rule ask_about:
    """Ask the model about a shard of its own answers: whether each is true, and how sure it is."""
    input:
        answers="results/answers/{model}/{dataset}/{shard}.parquet",
        manifest=local("results/models/{model}.json"),
    output:
        "results/asked/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/ask_about/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/ask_about/{model}/{dataset}/{shard}.tsv"
    priority: 1  # long jobs first, so that no core waits for the last of them at the end
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        mem_mb=model_memory,
        gpu=lambda wildcards: MODELS[wildcards.model]["gpus"],
        runtime=grows(240),
    params:
        prompts=lambda wildcards: prompt_of(wildcards, ["about_header", "about_shots", "about_true", "about_sure"]),
        dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
        batch_tokens=config.get("batch_tokens"),
        balance=config["balance"],
        seed=config["seed"],
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("ask_about.py"),
    script:
        "../../scripts/ask_about.py"


if "samples" in config:

    rule draw_samples:
        """Ask the questions of a shard's analysed examples again, several times each, at temperature 1."""
        input:
            answers="results/answers/{model}/{dataset}/{shard}.parquet",
            manifest=local("results/models/{model}.json"),
        output:
            "results/samples/{model}/{dataset}/{shard}.parquet",
        log:
            "results/logs/draw_samples/{model}/{dataset}/{shard}.log",
        benchmark:
            "results/benchmarks/draw_samples/{model}/{dataset}/{shard}.tsv"
        priority: 1
        conda:
            "../../envs/model.yaml"
        threads: MODEL_THREADS
        resources:
            mem_mb=model_memory,
            gpu=lambda wildcards: MODELS[wildcards.model]["gpus"],
            runtime=grows(240),
        params:
            samples=config["samples"],
            prompts=lambda wildcards: prompt_of(wildcards, ["first"]),
            dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
            batch_tokens=config.get("batch_tokens"),
            balance=config["balance"],
            seed=config["seed"],
            libraries=locked("torch", "transformers", "tokenizers"),
            code=code("draw_samples.py"),
        script:
            "../../scripts/draw_samples.py"
