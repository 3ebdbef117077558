# Anchorscope: from questions to the figure of delta P against layer.
# Read the rules in the order the data flows; workflow/anchorscope holds what is computed.

from snakemake.utils import min_version

min_version("9.10")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/job_resources.smk"
include: "workflow/rules/files.smk"
include: "workflow/rules/questions.smk"
include: "workflow/rules/models.smk"
include: "workflow/rules/answer.smk"
include: "workflow/rules/choose.smk"
include: "workflow/rules/extract.smk"
include: "workflow/rules/probe.smk"
include: "workflow/rules/summarise.smk"
include: "workflow/rules/experiments.smk"
include: "workflow/rules/saliency.smk"
include: "workflow/rules/methods.smk"
include: "workflow/rules/again.smk"
include: "workflow/rules/detectors.smk"
include: "workflow/rules/draw.smk"
include: "workflow/rules/detect.smk"
include: "workflow/rules/report.smk"


rule all:
    """Everything: tables, figures, claims and the report."""
    input:
        final_outputs(),


rule fetch:
    """Download every model and dataset of the config in advance, for nodes without a network."""
    input:
        local(expand("results/models/{model}.json", model=MODELS)),
        expand("results/raw/{dataset}.parquet", dataset=DATASETS),
        "results/licences.json",


rule answers:
    """The graded answers of every model, and no later stage."""
    input:
        shard_files("answers"),


rule activations:
    """The activations of every model: the last stage that needs a GPU."""
    input:
        activation_files(MODELS, DATASETS, SHARDS),
        replaced_files(MODELS, DATASETS, SHARDS, REPLACING_ASKED),


rule tables:
    """Every table of numbers, and the claims, without figures and report."""
    input:
        tables(),


rule salmon:
    """The tables with a dead salmon beside every trained model: its answers, through random weights of its shape."""
    input:
        tables(),
        with_salmons(SALIENCY) if "saliency" in EXPERIMENTS else [],


rule figures:
    """Every figure of the config."""
    input:
        figure_files(FIGURES),


rule detectors:
    """A detector of every model to take away, without the comparison of methods."""
    input:
        detector_files(),


rule detect:
    """Methods of detecting hallucinations side by side: tables, figures, detectors to take away, and the report."""
    input:
        detection_files(),
        "results/report.html",
