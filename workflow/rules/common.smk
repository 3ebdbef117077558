# What all stages share: a checked config, wildcards that can only be names from it, and the
# functions that turn config and code into params.
# In: config. Out: nothing on disk.

import os
import re
import sys
from pathlib import Path

import yaml
from snakemake.utils import validate

# From this file, because the main Snakefile may be another workflow's.
ROOT = Path(workflow.current_basedir.get_path_or_uri(secret_free=False)).parents[1]
if not ROOT.is_dir():
    sys.exit(f"{ROOT} is not a folder on this disk: clone Anchorscope and name the Snakefile of your clone.")
sys.path.insert(0, str(ROOT / "workflow"))
# A profile may have imported an Anchorscope that is installed elsewhere, to check a config file before it is read.
for name in [name for name in sys.modules if name.split(".")[0] == "anchorscope"]:
    del sys.modules[name]
# Jobs import the library of this checkout, the one that is fingerprinted, whatever else is installed.
os.environ.update(PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT / "workflow"), os.getenv("PYTHONPATH")])))
# Every job starts a Python. If it may not keep compiled modules, as in many containers, each job compiles torch again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Progress bars of the libraries rewrite a line, which in a file or pipe becomes one of thousands of characters.
if not sys.stderr.isatty():
    os.environ.update(TQDM_DISABLE="1")

from anchorscope.draw.kinds import DETECTION_KINDS, kinds_drawn
from anchorscope.experiments import NAMES as EXPERIMENT_NAMES
from anchorscope.files.disk import temporary_fault
from anchorscope.files.identity import (
    canonical_json,
    file_identity,
    folder_identity,
    gguf_file,
    read_json,
    sha256_of_file,
    tokenizer_beside,
)
from anchorscope.files.provenance import VERSIONED
from anchorscope.fingerprint import fingerprint, read_sources
from anchorscope.models.gpus import gpu_count
from anchorscope.models.manifest import SALMON
from anchorscope.extract.axes import EXACT, REPLACING, Grid, knockouts_of
from anchorscope.config_checks import mistakes, with_bundled_files
from anchorscope.config_files import file_mistakes, refuse_files, stop_at

SOURCES = read_sources((ROOT / "scripts").glob("*.py"), remembered=Path(".snakemake", "anchorscope_sources.json"))
SCHEMA = ROOT / "workflow" / "schemas" / "config.schema.yaml"
PROMPTS = read_json(ROOT / "workflow" / "resources" / "prompts.json")
# Relative, so that a finished run can move to another folder.
BUNDLED = Path(os.path.relpath(ROOT / "workflow" / "resources" / "questions"))
LANDMARKS = Path(os.path.relpath(ROOT / "workflow" / "resources" / "landmarks.yaml"))
BUNDLED_STYLE = Path(os.path.relpath(ROOT / "workflow" / "resources" / "figures.mplstyle"))

if workflow.is_main_process and temporary_fault():
    sys.exit(temporary_fault())

# A config given on the command line stands alone; it is not merged into the default one.
if not workflow.overwrite_configfiles and not workflow.modifier.skip_configfile:
    refuse_files(["config.yaml"])  # before Snakemake reads it

    configfile: "config.yaml"


stop_at([sentence for file in workflow.configfiles for sentence in file_mistakes(file)])
stop_at(mistakes(config, yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))))
config.update(with_bundled_files(config))
validate(config, str(SCHEMA))

MODELS = config["models"]
DATASETS = config["datasets"]
FIGURES = config["figures"]
STYLE = Path(config.get("style", BUNDLED_STYLE))
SHARDS = [f"{number:04d}" for number in range(-(-config["questions"] // config["shard_size"]))]
# What is measured: the components and positions of the config, or only the headline's.
GRID = Grid.of(
    config.get("components", [config["headline"]["component"]]),
    config.get("positions", [config["headline"]["position"]]),
)
PLACES = [".".join(place) for place in GRID.places()]
HEADLINE_PLACE = "{component}.{position}".format(**config["headline"])
# In the order of the claims about them, whatever the config's order.
EXPERIMENTS = [name for name in EXPERIMENT_NAMES if name in config["experiments"]]
SALIENCY = "results/experiments/saliency/{model}/{dataset}.parquet"
ESTIMATED = "results/experiments/{experiment}/{model}/{dataset}.estimates.parquet"
KNOCKOUTS = knockouts_of(config["interventions"], config["windows"])
# Experiments of the config whose passes replace tokens. They are kept and scored at the headline's place only.
REPLACING_ASKED = [name for name in REPLACING if name in config["experiments"]]
# Models that have a dead salmon: a twin whose weights are random. No name in the config can hold a plus.
WITH_SALMON = [name for name, model in MODELS.items() if "random" not in model]
SALMONS = [f"{name}{SALMON}" for name in WITH_SALMON]
PAIRS = [[model, dataset] for model in MODELS for dataset in DATASETS]
FORMATS = ["png", "pdf", "svg"]
KINDS_DRAWN = kinds_drawn(
    len(GRID), words=len(config["interventions"]), windows=1 + len(config["windows"]), experiments=EXPERIMENTS
)  # of figures
WIDTHS = ["", "_column"]  # of a page and of a column
ESTIMATES = ["summary", "series", "kinds", "strata", "forms", "label_errors", "deepest", "resampled"]
DETECTION_TABLES = ["detection", "transfer", "reliability", "coverage", "pathways"]
DETECTION_DRAWN = [kind.name for kind in DETECTION_KINDS]  # kinds of figures
WEIGHED = ["accounts", "told_apart"]
TABLES = ["summary", "series", "kinds", *WEIGHED, "strata", "forms", "label_errors", "deepest", "layers", "text"]
CORES = workflow.resource_settings.cores  # None for a command that runs nothing
# A default run has four datasets: a quarter of the cores each keeps them all busy, and one thread
# per job beats two jobs that fight over two cores.
THREADS = max(1, (CORES or 4) // 4)
# Each GPU computes for one job at a time, and jobs wait for it. More are started, so that while one computes the
# others import, plan, grade and write.
STARTED = 8  # jobs per GPU
MODEL_THREADS = max(1, (CORES or 1) // (STARTED * gpu_count())) if gpu_count() else THREADS


def one_of(names):
    return "|".join(map(re.escape, names))


def added(knockout):
    """What ends the names of a knockout's files; those of `exact_question` are the plain ones."""
    return "" if knockout == EXACT else f".{knockout}"


def own_settings(wildcards):
    """A model's entry in the config; a salmon has that of its trained model."""
    return MODELS[wildcards.model.removesuffix(SALMON)]


wildcard_constraints:
    model=one_of(MODELS),
    dataset=one_of(DATASETS),
    figure=one_of(FIGURES),
    shard=r"\d{4}",


def code(script):
    """A fingerprint of a script and the library that it uses: a change of either reruns its stage."""
    return fingerprint(ROOT / "scripts" / script, SOURCES)


def locked(*packages):
    """The pinned versions of the libraries whose results a stage passes on."""
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return " ".join(line for line in lines if line.split("==")[0] in packages)


def raw_file(name):
    """The local file that a dataset comes from; empty for a hub dataset."""
    dataset = DATASETS[name]
    if dataset["source"] == "bundled":
        return local(ancient(str(BUNDLED / f"{dataset['layout']}-mini.jsonl")))
    if dataset["source"] == "file":
        return local(ancient(dataset["path"]))
    return []


def origin(name):
    """What identifies a dataset's rows: the content of a local file, or a hub revision."""
    dataset = DATASETS[name]
    file = raw_file(name)
    if file:
        return {"source": dataset["source"], "sha256": sha256_of_file(file)}
    return {key: dataset.get(key) for key in ("repo", "subset", "split", "revision")}


def model_source(wildcards):
    """Where a model comes from."""
    model = MODELS[wildcards.model]
    return {key: model[key] for key in ("hub", "revision", "path", "gguf", "random") if key in model}


def model_identity(wildcards):
    """What identifies a model: its source and files; for random weights the contents of the files, wherever they are."""
    source = model_source(wildcards)
    if "random" in source:
        config = source["random"]["config"]
        files = [sha256_of_file(file) for file in [config, *tokenizer_beside(config)]]
        return canonical_json([files, source["random"]["seed"]])
    if gguf_file(source):
        return canonical_json([source, file_identity(gguf_file(source))])
    if "path" in source:
        return canonical_json([source, folder_identity(source["path"])])
    return canonical_json(source)


def prompt_of(wildcards, names):
    """The named prompts of the model's style as canonical JSON; of every style where the manifest decides."""
    chosen = own_settings(wildcards)["prompt"]
    styles = PROMPTS if chosen == "auto" else [chosen]
    return canonical_json(
        [{"style": style, "texts": {name: PROMPTS[style][name] for name in names}} for style in styles]
    )


def shard_slice(wildcards):
    """First row of a shard and the row after its last."""
    start = int(wildcards.shard) * config["shard_size"]
    return [start, min(start + config["shard_size"], config["questions"])]


def grows(amount):
    """What a job asks a scheduler for: the amount, and as much again with every retry."""
    return lambda wildcards, attempt: attempt * amount


def model_memory(wildcards, attempt):
    """The memory in MB that the config allows a model's jobs."""
    return attempt * int(1000 * own_settings(wildcards)["memory_gb"])


def families():
    """Models that a figure shows side by side, the smaller one left."""
    shown = {tuple(figure["models"]): None for figure in FIGURES.values()}
    return [list(models) for models in shown if len(models) > 1]


def settings():
    """The config without what only a scheduler reads, which changes no result and reruns nothing."""
    asked = ("gpus", "memory_gb")
    models = {name: {key: value for key, value in model.items() if key not in asked} for name, model in MODELS.items()}
    return canonical_json({**config, "models": models})


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


def answer_files():
    """The answers of every model to every shard of every dataset."""
    return expand("results/answers/{model}/{dataset}/{shard}.parquet", model=MODELS, dataset=DATASETS, shard=SHARDS)


def answers_of(wildcards):
    """The answers that activations are of; a salmon is given those of its trained model."""
    model = wildcards.model.removesuffix(SALMON)
    return f"results/answers/{model}/{wildcards.dataset}/{wildcards.shard}.parquet"


def all_answers_of(wildcards):
    """The same of all shards."""
    model = wildcards.model.removesuffix(SALMON)
    return [f"results/answers/{model}/{wildcards.dataset}/{shard}.parquet" for shard in SHARDS]


def activation_files(models, datasets, shards, places=PLACES, ends=tuple(map(added, KNOCKOUTS))):
    """The activations of some shards."""
    file = "results/activations/{model}/{dataset}/{shard}/{place}{end}.parquet"
    return expand(file, model=models, dataset=datasets, shard=shards, place=places, end=ends)


def kept_probes(place):
    """The probes of a model on a dataset at one component and position."""
    return f"results/probes/{{model}}/{{dataset}}/{place}.parquet"


def probed_at_once(size_mb):
    """How much of the activations is in memory: one component and position, or for a card several."""
    one = size_mb / len(PLACES)
    return max(one, min(size_mb, 6000)) if gpu_count() else one


def replaced_files(models, datasets, shards, experiments):
    """The activations of some shards in experiments that replace tokens."""
    ends = [f".{experiment}" for experiment in experiments]
    return activation_files(models, datasets, shards, places=[HEADLINE_PLACE], ends=ends)


def read_by_methods(datasets):
    """What the methods of detection read of some datasets of a model, by kind; the files of one dataset together."""
    kinds = ["answers", "asked", "reweighted", *(["samples"] if "samples" in config else [])]
    files = {
        kind: expand(f"results/{kind}/{{{{model}}}}/{{dataset}}/{{shard}}.parquet", dataset=datasets, shard=SHARDS)
        for kind in kinds
    }
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
    if wildcards.experiment == "boundary":
        shards = {"model": wildcards.model, "dataset": wildcards.dataset, "shard": SHARDS}
        return {
            kind: expand(f"results/{kind}/{{model}}/{{dataset}}/{{shard}}.parquet", **shards)
            for kind in ("answers", "unsure")
        }
    return {"measured": "results/experiments/{experiment}/{model}/{dataset}.parquet".format(**wildcards)}


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
    unsure = "results/unsure/{model}/{dataset}/{shard}.parquet"
    measured = "results/experiments/{experiment}/{model}/{dataset}.parquet"
    others = [name for name in EXPERIMENTS if name != "boundary"]
    return [
        *(expand(unsure, model=MODELS, dataset=DATASETS, shard=SHARDS) if "boundary" in EXPERIMENTS else []),
        *expand(measured, experiment=others, model=MODELS, dataset=DATASETS),
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


def detection_files():
    """Everything that `detect` adds: tables, figures, and for each model a detector with its card."""
    return [
        *expand("results/{table}.{format}", table=DETECTION_TABLES, format=["parquet", "csv"]),
        *expand("results/detectors/{model}.{format}", model=MODELS, format=["safetensors", "md"]),
        *figure_files(FIGURES, kinds=DETECTION_DRAWN),
    ]


def where_detected(files):
    """These files for the report, if detection is asked for or was made before."""
    # Not before the jobs are planned: only then is it known what is asked for.
    asked = any(target.endswith("detect") for target in workflow.dag_settings.targets)
    return files if asked or os.path.exists("results/detection.parquet") else []
