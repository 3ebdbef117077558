# Models: from a hub, a local folder, a GGUF in a Python package or a bare config to a folder and a manifest.
# In:  config: models.
# Out: results/models/{model}/          the model's files, or links to them
#      results/models/{model}.json      manifest: path, weights (trained or random), revision, layers, width, tokenizer
#      results/models/{model}+salmon.json   the manifest of the same model with random weights


rule fetch_model:
    """Bring a model's files here and describe them."""
    output:
        manifest=local("results/models/{model}.json"),
        folder=local(directory("results/models/{model}")),
    log:
        "results/logs/fetch_model/{model}.log",
    benchmark:
        "results/benchmarks/fetch_model/{model}.tsv"
    conda:
        "../../envs/model.yaml"
    threads: max(1, (CORES or 4) // (2 * len(MODELS)))  # little else runs before the models are there
    resources:
        mem_mb=grows(4000),
        runtime=grows(240),
    params:
        # Snakemake does not compare a param that takes `output`: only the identity decides on a rerun.
        source=lambda wildcards, output: canonical_json(source_of(MODELS[wildcards.model])),
        identity=lambda wildcards: identity_of(source_of(MODELS[wildcards.model])),
        libraries=locked("torch", "transformers", "gguf"),
        code=code("fetch_model.py"),
    script:
        "../../scripts/fetch_model.py"


rule describe_salmon:
    """Describe the model of the same shape with random weights; each job that needs them draws them."""
    input:
        local("results/models/{model}.json"),
    output:
        local(f"results/models/{{model}}{SALMON}.json"),
    log:
        "results/logs/describe_salmon/{model}.log",
    benchmark:
        "results/benchmarks/describe_salmon/{model}.tsv"
    wildcard_constraints:
        model=one_of(WITH_SALMON),
    conda:
        "../../envs/model.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        libraries=locked("torch", "transformers"),
        code=code("describe_salmon.py"),
    script:
        "../../scripts/describe_salmon.py"
