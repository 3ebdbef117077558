"""The tables of a run that never was, as large as one wants: what the report is made from, with names of choice."""

from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl

from anchorscope.draw.style import read_style
from anchorscope.draw.titles import RULE_TITLES, TEXT_ORDER
from anchorscope.draw.view import View
from anchorscope.extract.axes import COMPONENTS, Headline
from anchorscope.files.frames import write_frame
from anchorscope.files.sealed_parquet import provenance
from anchorscope.probe.anchor_rules import HONEST
from anchorscope.probe.label_errors import DRAWS, ERRORS
from anchorscope.report.chart import chart_section, family_chart
from anchorscope.report.claims import claims_section
from anchorscope.report.examples import PairExamples, examples_section, read_examples
from anchorscope.report.figures import Link
from anchorscope.report.page import Section
from anchorscope.report.survives import survives_section
from anchorscope.report.tables import (
    numbers_section,
    provenance_section,
)
from anchorscope.summarise.accounts import CURVE_POINTS
from anchorscope.summarise.claims import CLAIMS
from anchorscope.summarise.grouping import LOGITS
from anchorscope.summarise.parts import DISTANCE
from anchorscope.summarise.verdict_on_kinds import ALL_EXAMPLES, COMPARED, TWO_KINDS, UNDECIDED
from anchorscope.text.forms import QUESTION_FORMS

HEADLINE = Headline("resid", "answer_last")
DEPTHS = {"question": -50.0, "answer": -3.0, "all": -20.0, "gap": -47.0}
ASKED = 400
CUT_AND_CONTROL = ("exact_question", "random_question")


def make_summary(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """Curves of a plausible shape, with noise, for every model (with its number of layers), dataset and choice."""
    noise = np.random.default_rng(0)
    choices = product(layers, datasets, COMPONENTS, TEXT_ORDER, CUT_AND_CONTROL, RULE_TITLES, LOGITS, DEPTHS)
    blocks = []
    for model, dataset, component, position, intervention, rule, logits, anchor in choices:
        if logits != "measured" and (rule == "fixed" or Headline(component, position) != HEADLINE):
            continue
        count = layers[model]
        middle = DEPTHS[anchor] * np.sin(np.linspace(0, 2.5, count)) + noise.normal(0, 3, count)
        null = middle if intervention == "exact_question" and rule in ("flip", "honest") else np.full(count, np.nan)
        block = {
            "layer": np.arange(count, dtype=np.int16),
            "n": noise.integers(15, 300, count),
            "delta_p": middle,
            "low": middle - 4,
            "high": middle + 4,
            "delta_logit": middle / 25,
            "logit_low": (middle - 4) / 25,
            "logit_high": (middle + 4) / 25,
            "null": null,
            "null_low": null - 2,
            "null_high": null + 2,
            "auc_clean": 0.8,
            "auc_intervened": 0.6,
            "better_than_chance": np.arange(count) > 1,
            "share": 0.4,
            "share_low": 0.35,
            "share_high": 0.45,
            **{"model": model, "dataset": dataset, "component": component, "position": position},
            **{"intervention": intervention, "rule": rule, "logits": logits, "anchor": anchor},
            "labels": "reference" if rule == "fixed" else "plotted",
            **{"weights": "random" if model == "random" else "trained", "source": "file"},
        }
        blocks.append({name: np.broadcast_to(values, count) for name, values in block.items()})
    columns = {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def make_layers(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """How well every probe ranks; the reference layer is the third."""
    states = ("clean", *CUT_AND_CONTROL)
    rows = [
        {"model": model, "dataset": dataset, **asdict(HEADLINE), "intervention": state, "layer": layer, "auc": auc}
        | {"auc_low": auc - 0.05, "auc_high": auc + 0.05, "calibration_error": 0.04, "is_reference": layer == 2}
        | {"auc_shuffled": 0.5, "selectivity": auc - 0.5, "distance": distance, "distance_along_probe": 2 * distance}
        for model, dataset in product(layers, datasets)
        for state, auc, distance in zip(states, (0.85, 0.6, 0.84), (0.8, 1.0, 0.88), strict=True)
        for layer in range(layers[model])
    ]
    return pl.DataFrame(rows)


def make_text(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """How well words, lengths and two layers rank, the best layer's probe best."""
    areas = {"question_words": 0.6, "both_words": 0.62, "answer_length": 0.55, "first_layer": 0.6, "best_layer": 0.85}
    return pl.DataFrame(
        {"model": model, "dataset": dataset, **asdict(HEADLINE), "reader": reader, "auc": auc}
        | {"gain": 0.85 - auc, "gain_low": 0.8 - auc, "gain_high": 0.9 - auc}
        for model, dataset in product(layers, datasets)
        for reader, auc in areas.items()
    )


def make_series(models: list[str], datasets: list[str]) -> pl.DataFrame:
    """The whole curve of each gap, by rule and logits; the cut makes one of -10 and less, its control one of -1."""
    names = ("model", "dataset", "intervention", "rule", "logits")
    choices = product(models, datasets, CUT_AND_CONTROL, ("flip", "honest"), LOGITS)
    rows = []
    for number, choice in enumerate(choices):
        area = -1.0 if choice[2] == "random_question" else -10.0 - number
        ends = {"area": area, "area_low": area - 2, "area_high": area + 2}
        ends |= {f"{name.replace('area', 'area_logit')}": value / 25 for name, value in ends.items()}
        ends |= {f"{name.replace('area', 'area_null')}": -3.0 for name in ("area", "area_low", "area_high")}
        rows.append({**dict(zip(names, choice, strict=True)), **asdict(HEADLINE), "labels": "plotted", **ends})
    return pl.DataFrame(rows).with_columns(anchor=pl.lit("gap"))


def make_strata(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """The honest gap of each third by distance, deeper the farther; in the first layer a third has no interval."""
    rows = [
        {"model": model, "dataset": dataset, **asdict(HEADLINE), "intervention": cut, "stratum": third, "layer": layer}
        | {"rule": "honest", "anchor": "gap", "delta_p": -5.0 * (rank + 1) - layer, "low": -50.0 if layer else None}
        for model, dataset, cut in product(layers, datasets, CUT_AND_CONTROL)
        for rank, third in enumerate(DISTANCE)
        for layer in range(layers[model])
    ]
    return pl.DataFrame(rows)


def make_forms(models: list[str], datasets: list[str]) -> pl.DataFrame:
    """Two large forms and a small one; the honest gap is -9, at equal form -2, without answers in the question -3."""
    shown = {
        ("all", "all"): (100, -9.0),
        ("question_form", "choice"): (60, -4.0),
        ("question_form", "yes_no"): (40, None),
        ("question_form", "equal"): (60, -2.0),
        ("question_form", "covered"): (60, -8.0),
        ("answer_in_question", "no"): (70, -3.0),
        ("answer_in_question", "yes"): (30, None),
    }
    rows = [
        {"model": model, "dataset": dataset, **asdict(HEADLINE), "rule": rule, "logits": logits}
        | {"grouping": grouping, "form": form, "n": n, "n_right": n // 2, "share": n / 100}
        | {"share_question": 0.8, "share_answer": 0.125, "question_anchored": 0.6}
        | {f"gap{end}": gap and gap * by + width for end, width in (("", 0), ("_low", -1), ("_high", 1))}
        for model, dataset, (rule, logits, by) in product(
            models, datasets, (("flip", "measured", 3), ("honest", "measured", 1), ("honest", "recentred", 0.5))
        )
        for (grouping, form), (n, gap) in shown.items()
    ]
    return pl.DataFrame(rows, schema_overrides={f"gap{end}": pl.Float64 for end in ("", "_low", "_high")})


def make_label_errors(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """The later a kind of errors and a dataset, the farther the AUC falls; the gap moves to both sides."""
    rows = [
        {"model": model, "dataset": dataset, **asdict(HEADLINE), "errors": errors, "draw": draw}
        | {"auc_move": -0.01 * (kind + 1) - 0.002 * number, "gap_move": (kind + 1.0) * (-1) ** draw}
        for model in layers
        for number, dataset in enumerate(datasets)
        for kind, errors in enumerate(ERRORS)
        for draw in range(DRAWS)
    ]
    return pl.DataFrame(rows)


def make_deepest(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """Every example at the middle layer under both interventions, in no order of ids."""
    noise = np.random.default_rng(1)
    tables = []
    for model, dataset, intervention in product(layers, datasets, CUT_AND_CONTROL):
        clean, cut = noise.random((2, ASKED))
        told = np.where(clean > 0.5, cut - clean, clean - cut)
        tables.append(
            pl.DataFrame(
                {
                    "layer": np.full(ASKED, layers[model] // 2, np.int16),
                    "id": [f"{number * 7919 % 100_003:08x}" for number in range(1, ASKED + 1)],
                    "question_form": [QUESTION_FORMS[number % len(QUESTION_FORMS)] for number in range(ASKED)],
                    "hallucinated": noise.random(ASKED) > 0.5,
                    "p_clean": clean,
                    "p_ko": cut,
                    "delta_p": 100 * told,
                    "question_anchored": (clean > 0.5) != (cut > 0.5),
                    "logit_clean_first": np.log(clean / (1 - clean)),
                    "logit_ko_first": np.log(cut / (1 - cut)),
                }
            ).with_columns(model=pl.lit(model), dataset=pl.lit(dataset), intervention=pl.lit(intervention))
        )
    return pl.concat(tables)


def overall_gains(kinds: float) -> dict[str, float]:
    """What the mean over layers says where kinds gain so much, and degrees a half, both beyond doubt."""
    gains = {gain: kinds if gain == "kinds" else 0.5 for gain in COMPARED}
    return {**gains, **{f"{name}_error": 0.001 for name in gains}, "correlation": 0.4, "n": 1000}


def make_accounts(layers: dict[str, int], datasets: list[str]) -> pl.DataFrame:
    """A rising curve and a flat line at every layer, along which two in five examples lie: two kinds."""
    at_clean = np.linspace(-4, 4, CURVE_POINTS)
    shape = {"at_clean": at_clean, "kept_curve": 0.3 + 0.8 * at_clean, "level_lost": 0.1, "share_lost": 0.4}
    rows = [
        {"model": model, "dataset": dataset, "among": ALL_EXAMPLES, "layer": layer, **shape, **overall_gains(0.2)}
        for model, dataset in product(layers, datasets)
        for layer in [*range(layers[model]), None]
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def write_answers(path: Path, ids: list[str], words: str = "") -> Path:
    """An answers file with a question of the usual length for each id."""
    rows = [
        {
            "id": one,
            "question": f"who wrote the {one} part of the long history of the northern islands {words}",
            "spans": [{"start": 4, "end": 9, "kind": None}, {"start": 14, "end": 22, "kind": None}],
            "gold": [f"author {one}", "somebody", "nobody", "anybody", words],
            "answer": f"It was written by author {one} {words}",
            "exact_start": 18,
            "exact_answer": f"author {one}",
            "question_form": QUESTION_FORMS[number % len(QUESTION_FORMS)],
            "right": number % 3 == 0,
        }
        for number, one in enumerate(ids)
    ]
    write_frame(path, pl.DataFrame(rows), provenance(stage="answer"))
    return path


def write_delta(path: Path, deepest: pl.DataFrame, layers: int) -> Path:
    """A delta table of two repeats; its mean logits at the deepest layer are those of `deepest`, one pair's rows."""
    noise = np.random.default_rng(2)
    tables = []
    for repeat, layer in product((0, 1), range(layers)):
        near = 1 - abs(layer - deepest["layer"][0]) / layers
        apart = noise.normal(0, 0.5, len(deepest)) if layer != deepest["layer"][0] else 0.5 - repeat
        logits = {f"logit_{state}_full": pl.col(f"logit_{state}_first") * near + apart for state in ("clean", "ko")}
        rows = deepest.select("intervention", "id", "hallucinated", **logits)
        tables.append(rows.with_columns(layer=pl.lit(layer, pl.Int16), repeat=pl.lit(repeat, pl.Int8)))
    names = {name: pl.lit(value) for name, value in asdict(HEADLINE).items()}
    write_frame(path, pl.concat(tables).with_columns(**names), provenance(stage="probe"))
    return path


def examples_of_run(
    folder: Path, layers: dict[str, int], titles: dict[str, str], words: str = ""
) -> list[PairExamples]:
    """What the report reads for its examples, from files that are written here."""
    deepest = make_deepest(layers, list(titles))
    answers = write_answers(folder / "answers.parquet", deepest["id"].unique().sort().to_list(), words)
    write_frame(folder / "deepest.parquet", deepest, provenance(stage="summarise"))
    pairs = list(product(layers, titles))
    delta = {
        (model, dataset): write_delta(
            folder / f"delta.{model}.{dataset}.parquet", deepest.filter(model=model, dataset=dataset), layers[model]
        )
        for model, dataset in pairs
    }
    return read_examples(
        folder / "deepest.parquet",
        delta,
        {pair: [answers] for pair in pairs},
        models={name: name.title() for name in layers},
        datasets=titles,
        headline=HEADLINE,
    )


def make_claims(layers: dict[str, int], datasets: list[str]) -> dict:
    """Every claim for every model, on all datasets and on each."""
    verdicts = ("supported", "contradicted", "undecided")
    statements = {claim.number: claim.statement for claim in CLAIMS.values()}
    rows = [
        {"claim": number, "model": model, "dataset": dataset, "logits": "measured", "verdict": verdicts[number % 3]}
        | {"effect": -12.34, "low": -15.0, "high": -9.5, "because": None, "in_logits": {"verdict": "supported"}}
        | {"rule": HONEST}
        for number, model, dataset in product(statements, layers, [*datasets, None])
    ]
    ends = {"area_low": -15.0, "area_high": -9.5, "area_null": -10.0, "area_null_low": -12.0, "area_null_high": -8.0}
    beside = [
        {"model": model, "dataset": dataset, "logits": "measured", "area": -12.34, **ends, "beyond": False}
        for model, dataset in product(layers, datasets)
    ]
    gains = {f"{gain}{end}": 0.1 for gain in COMPARED for end in ("", "_low", "_high")}
    told = {"quality": "question_form", "value": "who", "n": 90, "share_lost": 0.3, "auc": None}
    told |= {"share_lost_low": 0.25, "share_lost_high": 0.35}
    within = {"among": "question_form who", "n": 90, "verdict": UNDECIDED, "could_see_share": None}
    kinds = [
        {"model": model, "dataset": dataset, "n": 300, **gains, "verdict": TWO_KINDS, "could_see_share": 0.1}
        | {"within": [within], "told_apart": [told]}
        for model, dataset in product(layers, datasets)
    ]
    return {
        "statements": {str(key): value for key, value in statements.items()},
        "claims": rows,
        "one_mechanism": beside,
        "kinds": kinds,
        "landmarks": [],
    }


def make_provenance(layers: dict[str, int], datasets: list[str]) -> dict:
    manifest = {"architecture": "llama", "parameters": 10**9, "layers": 16, "width": 2048, "stored_dtype": "bfloat16"}
    manifest |= {"weights": "trained", "revision": "0" * 40, "source": {"hub": "some/model"}}
    computed = {"dtype": "bfloat16", "dtype_because": "the config asks for it", "device": "NVIDIA H200", "threads": 4}
    return {
        "config": {"questions": ASKED},
        "models": dict.fromkeys(layers, manifest),
        "computed": {name: [computed] for name in layers},
        "datasets": {name: {"source": "file", "sha256": "0" * 64} for name in datasets},
        "licences": {"models": dict.fromkeys(layers, "apache-2.0"), "datasets": dict.fromkeys(datasets, "mit")},
        "libraries": {"torch": "2"},
        "python": "3",
    }


def sections(folder: Path, layers: dict[str, int], titles: dict[str, str], words: str = "") -> list[Section]:
    """Every section of the report but figures and files, of models by their layers and datasets by their titles."""
    datasets, models = list(titles), {name: name.title() for name in layers}
    summary = make_summary(layers, datasets)
    counts = {"asked": ASKED, "right": 150, "wrong": 240, "refused": 10, "left_out_by_balance": 90, "analysed": 300}
    found = {
        "text": make_text(layers, datasets),
        "layers": make_layers(layers, datasets),
        "series": make_series(list(layers), datasets),
        "strata": make_strata(layers, datasets),
        "forms": make_forms(list(layers), datasets),
        "label_errors": make_label_errors(layers, datasets),
    }
    asked = {
        "examples": pl.DataFrame([{"model": one, "dataset": two, **counts} for one, two in product(layers, datasets)]),
        "questions": pl.DataFrame({"dataset": datasets, "verdict": "kept", "rows": ASKED}),
    }
    contents = {
        "Claims": claims_section(make_claims(layers, datasets), models, titles),
        "What survives": survives_section(found, HEADLINE, models, titles),
        "ΔP by layer": chart_section(family_chart(summary, View(models, titles)), read_style()),
        "Numbers": numbers_section(found | asked, summary, HEADLINE, models, titles),
        "Explore an example": examples_section(examples_of_run(folder, layers, titles, words)),
        "What made it": provenance_section(
            make_provenance(layers, datasets), models, titles, Link("provenance.json", "provenance.json")
        ),
    }
    return [Section(title, content) for title, content in contents.items()]
