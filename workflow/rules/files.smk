# Which files there are: of a stage for some models and datasets, and of a whole run.
# In: the config, as common.smk has read it. Out: nothing on disk.


def figure_files(names, widths=WIDTHS, formats=FORMATS, kinds=KINDS_DRAWN):
    """Every kind of some figures."""
    file = "results/figures/{figure}/{kind}{width}.{format}"
    return expand(file, figure=names, kind=kinds, width=widths, format=formats)


def drawn(kind, width):
    """The files of one kind of figure; those for the page's width go into Snakemake's own report."""
    files = expand(f"results/figures/{{{{figure}}}}/{kind}{width}.{{format}}", format=FORMATS)
    if width:
        return files
    shown = {
        "caption": f"../report/{kind}.rst",
        "category": "Figures",
        "subcategory": "{figure}",
        "labels": {"kind": kind},
    }
    return [report(file, **shown) if file.endswith("svg") else file for file in files]


def shard_files(kind, models=MODELS, datasets=DATASETS):
    """The files of one kind of every shard."""
    return expand(
        f"results/{kind}/{{model}}/{{dataset}}/{{shard}}.parquet", model=models, dataset=datasets, shard=SHARDS
    )


def of_shard(kind):
    """The file of one kind that belongs to a job's shard."""
    return (
        lambda wildcards: f"results/{kind}/{model_that_answered(wildcards)}/{wildcards.dataset}/{wildcards.shard}.parquet"
    )


def chosen_of(wildcards):
    """The examples chosen of all shards of a job's model and dataset."""
    return shard_files("chosen", model_that_answered(wildcards), wildcards.dataset)


def activation_files(models, datasets, shards, places=PLACES, ends=tuple(map(added, KNOCKOUTS))):
    """The activations of some shards."""
    file = "results/activations/{model}/{dataset}/{shard}/{place}{end}.parquet"
    return expand(file, model=models, dataset=datasets, shard=shards, place=places, end=ends)


def kept_probes(place):
    """The probes of a model on a dataset at one component and position."""
    return f"results/probes/{{model}}/{{dataset}}/{place}.parquet"


def replaced_files(models, datasets, shards, experiments):
    """The activations of some shards in experiments that replace tokens."""
    ends = [f".{experiment}" for experiment in experiments]
    return activation_files(models, datasets, shards, places=[HEADLINE_PLACE], ends=ends)


def read_by_methods(datasets):
    """What the methods of detection read of some datasets of a model, by kind; the files of one dataset together."""
    kinds = ["answers", "asked", "reweighted", *(["samples"] if "samples" in config else [])]
    files = {kind: shard_files(kind, "{model}", datasets) for kind in kinds}
    places = {"places": [HEADLINE_PLACE], "ends": [added(EXACT)]}
    return files | {"activations": activation_files("{model}", datasets, SHARDS, **places)}


def salmon_pairs():
    """The salmons that are asked for, or were made before, each with its dataset."""
    asked = any(target.endswith("salmon") for target in workflow.dag_settings.targets)
    return [
        [model, dataset]
        for model in SALMONS
        for dataset in DATASETS
        if asked or os.path.exists(f"results/estimates/{model}/{dataset}/summary.parquet")
    ]


def with_salmons(file):
    """A file of every model with every dataset, and behind them those of salmons."""
    # Not before the jobs are planned: only then is it known what is asked for.
    return lambda wildcards: [file.format(model=model, dataset=dataset) for model, dataset in PAIRS + salmon_pairs()]


def measured_by(wildcards):
    """What an experiment is estimated from, besides groups and reference layers."""
    return {
        kind: (
            MEASURED.format(**wildcards)
            if kind == "measured"
            else shard_files(kind, wildcards.model, wildcards.dataset)
        )
        for kind in READS[wildcards.experiment]
    }


def estimates_of(experiment, pairs):
    """What an experiment shows of each model on each dataset."""
    return [ESTIMATED.format(experiment=experiment, model=model, dataset=dataset) for model, dataset in pairs]


def experiment_salmons(wildcards):
    """Salmons that an experiment is compared with; only saliency is."""
    return salmon_pairs() if wildcards.experiment == "saliency" else []


def tables():
    """Every table that has all models and datasets, and the claims."""
    return [
        *expand("results/{table}.{format}", table=TABLES + EXPERIMENTS, format=["parquet", "csv"]),
        *expand("results/claims.{format}", format=["json", "md"]),
        *expand("results/{table}.csv", table=["examples", "questions"]),
    ]


def experiment_files():
    """What the experiments of the config measure for each model and dataset."""
    measured = [name for name in EXPERIMENTS if "measured" in READS[name]]
    return [
        *(shard_files("unsure") if any("unsure" in READS[name] for name in EXPERIMENTS) else []),
        *expand(MEASURED, experiment=measured, model=MODELS, dataset=DATASETS),
    ]


def final_outputs():
    """Everything a run is for. The per-model tables are named too, so that none can be missing."""
    return [
        *expand("results/delta/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        *expand("results/layers/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        *expand("results/text/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        *experiment_files(),
        *tables(),
        "results/report.html",
        "results/provenance.json",
        *figure_files(FIGURES),
    ]


def detector_files():
    """For each model a detector, with its card."""
    return expand("results/detectors/{model}.{format}", model=MODELS, format=["safetensors", "md"])


def detection_files():
    """Everything that `detect` adds: tables, figures and detectors."""
    return [
        *expand("results/{table}.{format}", table=DETECTION_TABLES, format=["parquet", "csv"]),
        *detector_files(),
        *figure_files(FIGURES, kinds=DETECTION_DRAWN),
    ]


def where_detected(files):
    """These files for the report, if detection is asked for or was made before."""
    # Not before the jobs are planned: only then is it known what is asked for.
    asked = any(target.endswith("detect") for target in workflow.dag_settings.targets)
    return files if asked or os.path.exists("results/detection.parquet") else []
