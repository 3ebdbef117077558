# Report: everything a run shows, on one page.
# In:  results/{summary,series,strata,forms,label_errors,layers,deepest,text}.parquet, results/{experiment}.parquet, results/claims.json,
#      results/{examples,questions}.csv, results/questions/…, results/answers/…, results/delta/…,
#      results/figures/*/*.svg and .png, results/models/*.json, the style file; where `detect` was asked for also what it makes
# Out: results/report.html
#      results/licences.json     under which licences models and datasets stand
#      results/provenance.json   settings, code, models, datasets, libraries and devices that made the run

# The report's code is fingerprinted without these.
TEMPLATES = LIBRARY / "anchorscope" / "report" / "templates"


rule report:
    """Put what was found, claims, figures, tables, examples and settings on one self-contained page."""
    input:
        **{experiment: f"results/{experiment}.parquet" for experiment in EXPERIMENTS},
        summary="results/summary.parquet",
        series="results/series.parquet",
        strata="results/strata.parquet",
        forms="results/forms.parquet",
        label_errors="results/label_errors.parquet",
        layers="results/layers.parquet",
        deepest="results/deepest.parquet",
        text="results/text.parquet",
        claims="results/claims.json",
        examples="results/examples.csv",
        questions="results/questions.csv",
        provenance="results/provenance.json",
        figures=figure_files(FIGURES, formats=["svg", "png"]),
        detection=lambda wildcards: where_detected(expand("results/{table}.parquet", table=DETECTION_TABLES)),
        detection_figures=lambda wildcards: where_detected(
            figure_files(FIGURES, formats=["svg", "png"], kinds=DETECTION_DRAWN)
        ),
        detectors=lambda wildcards: where_detected(
            expand("results/detectors/{model}.{format}", model=MODELS, format=["safetensors", "md"])
        ),
        asked=expand("results/questions/{dataset}.parquet", dataset=DATASETS),
        answers=shard_files("answers"),
        delta=expand("results/delta/{model}/{dataset}.parquet", model=MODELS, dataset=DATASETS),
        style=local(ancient(str(STYLE))),
    output:
        report("results/report.html", caption="../report/page.rst", category="Report"),
    log:
        "results/logs/report.log",
    benchmark:
        "results/benchmarks/report.tsv"
    conda:
        "../../envs/draw.yaml"
    resources:
        mem_mb=grows(4000),
        runtime=grows(10),
    params:
        models=canonical_json([[name, model["title"]] for name, model in MODELS.items()]),
        datasets=canonical_json([[name, dataset["title"]] for name, dataset in DATASETS.items()]),
        figures=canonical_json({name: figure["models"] for name, figure in FIGURES.items()}),
        headline=HEADLINE,
        outputs=lambda wildcards: canonical_json(final_outputs() + where_detected(detection_files())),
        chart_style=sha256_of_file(STYLE),
        templates=canonical_json({file.name: sha256_of_file(file) for file in sorted(TEMPLATES.iterdir())}),
        libraries=locked("altair", "vl-convert-python", "pillow", "Jinja2"),
        code=code("report.py"),
    script:
        "../../scripts/report.py"


rule read_licences:
    """Ask under which licences models and datasets stand, where they come from."""
    input:
        local(expand("results/models/{model}.json", model=MODELS)),
    output:
        "results/licences.json",
    log:
        "results/logs/read_licences.log",
    benchmark:
        "results/benchmarks/read_licences.tsv"
    conda:
        "../../envs/model.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        # Without the hash: a local file that is edited states no other licence.
        origins=lambda wildcards: canonical_json({name: {**origin(name), "sha256": None} for name in DATASETS}),
        code=code("read_licences.py"),
    script:
        "../../scripts/read_licences.py"


rule provenance:
    """Write down what made this run."""
    input:
        manifests=local(expand("results/models/{model}.json", model=MODELS)),
        licences="results/licences.json",
        # Which machine computed is in the metadata of what it wrote; every file of a shard has the same.
        answers=shard_files("answers"),
        activations=[
            *activation_files(MODELS, DATASETS, SHARDS, PLACES[:1]),
            *replaced_files(MODELS, DATASETS, SHARDS, REPLACING_ASKED),
        ],
    output:
        "results/provenance.json",
    log:
        "results/logs/provenance.log",
    benchmark:
        "results/benchmarks/provenance.tsv"
    conda:
        "../../envs/model.yaml"
    resources:
        mem_mb=grows(1000),
        runtime=grows(10),
    params:
        config=settings(),
        fingerprints=canonical_json(
            {script.stem: code(script.name) for script in sorted((ROOT / "scripts").glob("*.py"))}
        ),
        origins=lambda wildcards: canonical_json({name: origin(name) for name in DATASETS}),
        libraries=locked(*VERSIONED),
        code=code("provenance.py"),
    script:
        "../../scripts/provenance.py"
