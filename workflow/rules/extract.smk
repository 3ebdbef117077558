# Activations: the config's components and positions, under every intervention, prompt and layer, of the chosen examples.
# In:  results/chosen/{model}/{dataset}/{shard}.parquet, results/answers/… for what replaces tokens, results/models/{model}.json
# Out: results/activations/{model}/{dataset}/{shard}/{component}.{position}.parquet              clean and exact_question
#      results/activations/{model}/{dataset}/{shard}/{component}.{position}.{knockout}.parquet   each other knockout
#      results/activations/{model}/{dataset}/{shard}/{component}.{position}.{experiment}.parquet   what replaces tokens


rule extract:
    """Run the passes of one knockout over a shard's chosen examples and keep the vectors that are probed."""
    input:
        chosen=of_shard("chosen"),
        manifest=local("results/models/{model}.json"),
    output:
        activation_files("{model}", "{dataset}", "{shard}", ends="{end}"),
    log:
        "results/logs/extract/{model}/{dataset}/{shard}{end}.log",
    benchmark:
        "results/benchmarks/extract/{model}/{dataset}/{shard}{end}.tsv"
    wildcard_constraints:
        model=one_of([*MODELS, *SALMONS]),
        end=f"({one_of(map(added, KNOCKOUTS))})",  # Snakemake takes an empty constraint for none
    priority: 2  # long jobs first, so that no core waits for the last of them at the end
    conda:
        "../../envs/model.yaml"
    threads: MODEL_THREADS
    resources:
        **MODEL_RESOURCES,
    params:
        **model_params(["first", "second"]),
        # Snakemake does not compare a param that takes `output`: only missing files lead to a rerun, so that asking for
        # fewer of them reruns nothing.
        grid=lambda wildcards, output: canonical_json([GRID.components, GRID.positions]),
        knockout=lambda wildcards: wildcards.end.removeprefix(".") or EXACT,
        code=code("extract.py"),
    script:
        "../../scripts/extract.py"


use rule extract as extract_experiment with:
    input:
        chosen=of_shard("chosen"),
        answers=of_shard("answers"),  # whose questions' words are put in the place of others
        manifest=local("results/models/{model}.json"),
    output:
        replaced_files("{model}", "{dataset}", "{shard}", experiments=["{experiment}"]),
    log:
        "results/logs/extract/{model}/{dataset}/{shard}.{experiment}.log",
    benchmark:
        "results/benchmarks/extract/{model}/{dataset}/{shard}.{experiment}.tsv"
    wildcard_constraints:
        experiment=one_of(REPLACING),
    params:
        grid=lambda wildcards, output: canonical_json([[part] for part in HEADLINE_PLACE.split(".")]),
        prompts=lambda wildcards: prompt_of(wildcards, ["first"]),
        knockout=lambda wildcards: wildcards.experiment,
