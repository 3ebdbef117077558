# What all stages share: a checked config, wildcards that can only be names from it, and the functions that turn config
# and code into params and resources.
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
# Jobs import the library of this clone, the one that is fingerprinted, whatever else is installed. Without a clone, they
# import the one that is installed beside these rules.
if (ROOT / "workflow" / "anchorscope").is_dir():
    sys.path.insert(0, str(ROOT / "workflow"))
    os.environ.update(PYTHONPATH=os.pathsep.join(filter(None, [str(ROOT / "workflow"), os.getenv("PYTHONPATH")])))
elif workflow.deployment_settings.deployment_method:
    sys.exit("Jobs in environments of their own would not find an installed Anchorscope: use the Snakefile of a clone.")
# A profile may have imported an Anchorscope that is installed elsewhere, to check a config file before it is read.
for name in [name for name in sys.modules if name.split(".")[0] == "anchorscope"]:
    del sys.modules[name]
# Every job starts a Python. If it may not keep compiled modules, as in many containers, each job compiles torch again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Progress bars of the libraries rewrite a line, which in a file or pipe becomes one of thousands of characters.
if not sys.stderr.isatty():
    os.environ.update(TQDM_DISABLE="1")

from anchorscope.draw.registry import DETECTION_KINDS, kinds_drawn
from anchorscope.experiments import READS
from anchorscope.files.atomic import temporary_fault
from anchorscope.files.bundled import LIBRARY
from anchorscope.files.identity import VERSIONED, canonical_json, read_json, sha256_of_file
from anchorscope.fingerprint import fingerprint, read_sources
from anchorscope.models.gpus import gpu_count
from anchorscope.models.manifest import SALMON, identity_of, source_of
from anchorscope.extract.axes import EXACT, REPLACING, Grid, knockouts_of
from anchorscope.config_checks import mistakes, with_bundled_files
from anchorscope.config_files import refuse_files, stop_at

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


refuse_files(workflow.configfiles)
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
HEADLINE = canonical_json(config["headline"])
HEADLINE_PLACE = "{component}.{position}".format(**config["headline"])
# In the order of the claims about them, whatever the config's order.
EXPERIMENTS = [name for name in READS if name in config["experiments"]]
MEASURED = "results/experiments/{experiment}/{model}/{dataset}.parquet"
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
# Three jobs follow the probes of a model on a dataset. Where there are few of these, the two long ones have more cores,
# above all the longest.
AFTER_PROBES = (CORES or 4) // len(PAIRS)
ESTIMATING = max(1, (AFTER_PROBES - 1) // 2)
WEIGHING = max(1, AFTER_PROBES - 1 - ESTIMATING)
# Few jobs at a time compute on a GPU, and the others wait for it. More are started, so that meanwhile these import, plan,
# grade and write.
STARTED = 8  # jobs per GPU
MODEL_THREADS = max(1, (CORES or 1) // (STARTED * gpu_count())) if gpu_count() else THREADS


def one_of(names):
    return "|".join(map(re.escape, names))


def added(knockout):
    """What ends the names of a knockout's files; those of `exact_question` are the plain ones."""
    return "" if knockout == EXACT else f".{knockout}"


def model_that_answered(wildcards):
    """A salmon is given the answers of its trained model, and so the examples chosen of them."""
    return wildcards.model.removesuffix(SALMON)


def own_settings(wildcards):
    """A model's entry in the config; a salmon has that of its trained model."""
    return MODELS[model_that_answered(wildcards)]


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


def prompt_of(wildcards, names):
    """The named prompts of the model's style as canonical JSON; of every style where the manifest decides."""
    chosen = own_settings(wildcards)["prompt"]
    styles = PROMPTS if chosen == "auto" else [chosen]
    return canonical_json(
        [{"style": style, "texts": {name: PROMPTS[style][name] for name in names}} for style in styles]
    )


def of_datasets(key):
    """What the config says under a key for each dataset, as canonical JSON."""
    return canonical_json({name: dataset[key] for name, dataset in DATASETS.items()})


def shard_slice(wildcards):
    """First row of a shard and the row after its last."""
    start = int(wildcards.shard) * config["shard_size"]
    return [start, min(start + config["shard_size"], config["questions"])]


def model_params(prompts):
    """What every job that runs a model is told: the named prompts, and how it computes."""
    return {
        "prompts": lambda wildcards: prompt_of(wildcards, prompts),
        "dtype": lambda wildcards: own_settings(wildcards)["dtype"],
        "batch_tokens": config.get("batch_tokens"),
        "libraries": locked("torch", "transformers", "tokenizers"),
    }


def families():
    """Models that a figure shows side by side, the smaller one left."""
    shown = {tuple(figure["models"]): None for figure in FIGURES.values()}
    return [list(models) for models in shown if len(models) > 1]


def settings():
    """The config without what only a scheduler reads, which changes no result and reruns nothing."""
    asked = ("gpus", "memory_gb")
    models = {name: {key: value for key, value in model.items() if key not in asked} for name, model in MODELS.items()}
    return canonical_json({**config, "models": models})
