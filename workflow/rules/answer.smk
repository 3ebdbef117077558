# Answers: what the model says, whether it is right, and where the exact answer stands.
# In:  results/questions/{dataset}.parquet, results/models/{model}.json
# Out: results/answers/{model}/{dataset}/{shard}.parquet


def prompts_of(wildcards):
    """Both prompts of the model's style, as canonical JSON."""
    texts = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    style = MODELS[wildcards.model]["prompt"]
    return canonical_json({"style": style, "texts": texts[style]})


def first_prompt_of(wildcards):
    """The prompt that answers are generated under; the second one cannot change them."""
    texts = yaml.safe_load(PROMPTS.read_text(encoding="utf-8"))
    style = MODELS[wildcards.model]["prompt"]
    return canonical_json({"style": style, "texts": {"first": texts[style]["first"]}})


def shard_slice(wildcards):
    """First and last row of a shard, [start, stop)."""
    start = int(wildcards.shard) * config["shard_size"]
    return [start, min(start + config["shard_size"], config["questions"])]


rule answer:
    """Ask the model a shard of questions and judge its answers."""
    input:
        questions="results/questions/{dataset}.parquet",
        manifest="results/models/{model}.json",
    output:
        "results/answers/{model}/{dataset}/{shard}.parquet",
    log:
        "results/logs/answer/{model}/{dataset}/{shard}.log",
    benchmark:
        "results/benchmarks/answer/{model}/{dataset}/{shard}.tsv"
    conda:
        "../../envs/model.yaml"
    threads: THREADS
    resources:
        mem_mb=4000,
        runtime=240,
    params:
        rows=shard_slice,
        prompt=first_prompt_of,
        dtype=lambda wildcards: MODELS[wildcards.model]["dtype"],
        batch_tokens=config["batch_tokens"],
        libraries=locked("torch", "transformers", "tokenizers"),
        code=code("answer.py"),
    script:
        "../../scripts/answer.py"
