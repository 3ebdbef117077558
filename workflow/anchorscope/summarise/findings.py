"""What a run found: the verdicts on the claims, and what to read beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import polars as pl

from anchorscope.extract.axes import Headline
from anchorscope.files.frames import read_frame
from anchorscope.summarise.bottom_line import bottom_line
from anchorscope.summarise.claims import Findings, Run, beside_null, judge_claims, larger_neighbours, read_run
from anchorscope.summarise.curves import QUANTITIES
from anchorscope.summarise.notes import notes, unprobed
from anchorscope.summarise.tables import Coverage
from anchorscope.summarise.verdict_on_kinds import COMPARED, EVERYONE, TWO_KINDS, judge, judge_all


@dataclass(frozen=True)
class Comparison:
    """What the numbers of a run are compared with."""

    families: list[list[str]]  # models that are shown side by side, the smaller one left
    layouts: dict[str, str]  # by dataset, whose questions it has
    published: dict  # landmarks of the published figures, by model, and their tolerance


def find(
    tables: Mapping[str, pl.DataFrame],
    resampled: Sequence[str],
    headline: Headline,
    coverage: Coverage,
    comparison: Comparison,
) -> Findings:
    """Judge the claims by the tables of all models and datasets; `resampled` are the files of the probed pairs."""
    summary, series, layers = (tables[name].filter(**vars(headline)) for name in ("summary", "series", "layers"))
    runs: dict[str, list[Run]] = {quantity: [] for quantity in QUANTITIES}
    for (model, dataset), path in zip(coverage.probed(), resampled, strict=True):
        own = {"model": model, "dataset": dataset}
        curves, quality, drawn = summary.filter(**own), layers.filter(**own), read_frame(path)
        for quantity, some in runs.items():
            some.append(read_run(model, dataset, curves, drawn, quality, quantity=quantity))
    parameters = {name: manifest["parameters"] for name, manifest in coverage.models.items()}
    claims = judge_claims(runs, larger_neighbours(comparison.families, parameters))
    kinds = judge_kinds(tables["accounts"], tables["told_apart"], list(coverage.models))
    return Findings(
        bottom_line={
            model: bottom_line(model, claims, kinds, series=series, forms=tables["forms"]) for model in coverage.models
        },
        claims=claims,
        one_mechanism=beside_null(series, runs["delta_p"]),
        kinds=kinds,
        landmarks=published_beside_measured(comparison, summary, coverage.models),
        weights={name: manifest["weights"] for name, manifest in coverage.models.items()},
        note=note_on(tables["summary"], coverage),
    )


def judge_kinds(accounts: pl.DataFrame, told_apart: pl.DataFrame, models: Sequence[str]) -> list[dict]:
    """One row per model and dataset: the verdict on kinds, what it rests on, and what tells two kinds apart."""
    gains = [f"{gain}{end}" for gain in COMPARED for end in ("", "_error", "_low", "_high")]
    columns = ["model", "dataset", "among", "n", *gains, "correlation", "share_lost"]
    overall = accounts.filter(pl.col("layer").is_null(), pl.col("model").is_in(models)).select(columns)
    verdicts, found = judge_all(accounts), []
    for row in overall.filter(among=EVERYONE).to_dicts():
        own = {"model": row["model"], "dataset": row["dataset"]}
        verdict = verdicts[row["model"], row["dataset"]]
        seen = verdict.verdict == TWO_KINDS
        parts = overall.filter(pl.col("among") != EVERYONE, **own).to_dicts() if seen else []
        within = [
            {"among": part["among"], "n": part["n"], **asdict(judge(part, verdicts=len(parts)))} for part in parts
        ]
        told = (
            told_apart.filter(**own).select("quality", "value", "n", "^(share_lost|auc).*$").to_dicts() if seen else []
        )
        found.append({**row, **asdict(verdict), "within": within, "told_apart": told})
    return found


def published_beside_measured(comparison: Comparison, summary: pl.DataFrame, models: Mapping[str, dict]) -> list[dict]:
    """One row per landmark of each trained model of this run that the published figures show."""
    published, rows = comparison.published, []
    for name, manifest in models.items():
        flip = summary.filter(model=name, rule="flip", logits="measured", intervention="exact_question")
        rows += [
            {"model": name, **compare(landmark, published["tolerance"], flip=flip, layouts=comparison.layouts)}
            for landmark in published["models"].get(manifest["source"].get("hub"), [])
        ]
    return rows


def compare(landmark: dict, tolerance: float, flip: pl.DataFrame, layouts: dict[str, str]) -> dict:
    """A landmark of a model: published and measured range over the datasets, and whether they agree.

    `flip` holds the model's headline summary under that rule; `layouts` says whose questions a dataset has.
    """
    first, last = landmark["layers"]
    low, high = landmark["published"]
    rows = flip.filter(anchor=landmark["anchor"]).drop_nulls("delta_p")
    published = {"landmark": landmark["name"], "published_low": low, "published_high": high}
    if "deepest" in landmark:
        wanted = [name for name, layout in layouts.items() if layout == landmark["deepest"]]
        rows = rows.filter(pl.col("dataset").is_in(wanted)).sort("delta_p").head(1)
        inside = rows.filter(pl.col("layer").is_between(first, last))
    else:
        rows = inside = rows.filter(pl.col("layer").is_between(first, last))
    if rows.is_empty():
        return published | {"measured_low": None, "measured_high": None, "layers": None, "agrees": None}
    values, layers = rows["delta_p"].to_list(), rows["layer"].to_list()
    near = low - tolerance <= min(values) and max(values) <= high + tolerance
    return published | {
        "measured_low": min(values),
        "measured_high": max(values),
        "layers": f"{min(layers)}–{max(layers)}",
        "agrees": near and not inside.is_empty(),
    }


def note_on(summary: pl.DataFrame, coverage: Coverage) -> str:
    """What a reader must know about the numbers, one sentence per line."""
    models, datasets = ({name: name for name in names} for names in zip(*coverage.pairs, strict=True))
    sentences = [*notes(summary, models, datasets), unprobed(coverage.metadata(), models, datasets)]
    return "\n".join(filter(None, sentences))
