"""Reads the results of a run, each part when it is asked for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from anchorscope.api.records import Activations, ProbeWeights
from anchorscope.draw.registry import DETECTION_KINDS, FIGURE_KINDS, kinds_drawn
from anchorscope.extract.axes import CLEAN, EXACT, Grid, Headline, knockouts_of, passes_of
from anchorscope.files.arguments import check_known, check_whole, choose_titles
from anchorscope.files.frames import read_frame
from anchorscope.files.sealed_parquet import made_from
from anchorscope.models.manifest import SALMON
from anchorscope.probe.anchor_rules import FULL
from anchorscope.probe.examples import enough, too_few
from anchorscope.summarise.run_folder import file_of_run, find_run, load_summary, names_in_order, read_claims

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from anchorscope.detect.detector import Detector

SAID = ("id", "question", "answer", "right", "refused", "gold", "exact_answer")  # first of what is known of an answer
ABOUT_QUESTIONS = ("subject", "property", "popularity", "question_form", "answer_form", "answer_in_question")
CLAIM_COLUMNS = ("model", "dataset", "logits", "rule", "verdict", "effect", "low", "high", "because")
NamesShown = str | Sequence[str] | Mapping[str, str]  # a name, some names, or names with the titles to show


def open(folder: Path | str = "results") -> "Results":
    """Open the results of a run: `folder` is its folder `results`, or the folder that this is in.

    Almost nothing is read yet. Whatever is asked for later is read then, and checked against its seal.

    >>> import anchorscope
    >>> run = anchorscope.open("docs/gallery")
    >>> run
    Results of smollm2-135m, qwen2.5-coder-1.5b on popqa, triviaqa, hotpotqa, nq (docs/gallery)
    """
    return Results(*find_run(folder))


class _Tables(dict):
    """A run's tables by name, each read when a figure asks for it."""

    def __init__(self, run: "Results"):
        self.run = run

    def __missing__(self, name: str) -> pl.DataFrame:
        self[name] = self.run._table(name)
        return self[name]


@dataclass(frozen=True, repr=False)
class Results:
    """The results of a run; `anchorscope.open` opens them.

    | you want | ask for |
    |---|---|
    | what was run | `models`, `datasets` |
    | curves by layer, and verdicts on them | `summary()`, `claims()`, `plot()` |
    | any other table of all models and datasets | `table(name)`; `tables` has the names |
    | questions and answers | `answers()` |
    | numbers of every example | `delta(model, dataset)` |
    | hidden states, and the probes on them | `activations(model, dataset)`, `probe(model, dataset, layer)` |
    | a detector of hallucinated answers | `detector(model)` |

    Examples that name smollm2-135m and nq-mini are of the default run. The others need no run.
    """

    folder: Path
    record: dict[str, Any] = field(compare=False)  # what made the run: its provenance

    def __repr__(self) -> str:
        return f"Results of {_few(self.models)} on {_few(self.datasets)} ({self.folder})"

    @property
    def models(self) -> list[str]:
        """The models by their names in the config.

        >>> anchorscope.open("docs/gallery").models
        ['smollm2-135m', 'qwen2.5-coder-1.5b']
        """
        return list(self._named["model"])

    @property
    def datasets(self) -> list[str]:
        """The datasets by their names in the config.

        >>> anchorscope.open("docs/gallery").datasets
        ['popqa', 'triviaqa', 'hotpotqa', 'nq']
        """
        return list(self._named["dataset"])

    @property
    def tables(self) -> list[str]:
        """The names of the tables of all models and datasets that are here.

        >>> anchorscope.open("docs/gallery").tables
        ['accounts', 'deepest', 'detection', 'layers', 'summary']
        """
        return sorted(path.stem for path in self.folder.glob("*.parquet"))

    @property
    def figures(self) -> list[str]:
        """The kinds of figures that `plot` can draw.

        >>> anchorscope.open("docs/gallery").figures
        ['family', 'honest', 'push', 'lines', 'auc', 'share', 'distribution', 'detection']
        """
        config = self.record["config"]
        measured = kinds_drawn(
            len(self._grid),
            words=len(config["interventions"]),
            windows=1 + len(config["windows"]),
            experiments=[kind.name for kind in FIGURE_KINDS if kind.name in self.tables],
        )
        return [*measured, *(kind.name for kind in DETECTION_KINDS if kind.name in self.tables)]

    def summary(self) -> pl.DataFrame:
        """One row per model, dataset, component, position, intervention, rule, labels, logits, anchor and layer.

        >>> summary = anchorscope.open("docs/gallery").summary()
        >>> curve = {"model": "smollm2-135m", "dataset": "popqa", "anchor": "question", "labels": "plotted"}
        >>> headline = {"rule": "honest", "logits": "measured", "intervention": "exact_question"}
        >>> summary.filter(**curve, **headline).select("layer", "n", "delta_p", "low", "high").shape
        (30, 5)
        """
        return load_summary(self._file("summary.parquet"))

    def table(self, name: str) -> pl.DataFrame:
        """A table of all models and datasets; workflow/schemas/tables.yaml describes them.

        >>> layers = anchorscope.open("docs/gallery").table("layers")
        >>> best = layers.filter(pl.col("is_reference"), intervention="clean", dataset="nq")
        >>> dict(best.select("model", pl.col("auc").round(2)).iter_rows())
        {'smollm2-135m': 0.74, 'qwen2.5-coder-1.5b': 0.83}
        """
        check_known("The run", "table", name, self.tables)
        return self._table(name)

    def claims(self) -> pl.DataFrame:
        """The verdict on each claim, by model, dataset (null: all of them) and kind of logits.

        >>> claims = anchorscope.open("docs/gallery").claims()
        >>> first = claims.filter(pl.col("dataset").is_null(), claim=1, logits="measured")
        >>> first.select("model", "verdict", pl.col("effect").round(1)).rows()
        [('smollm2-135m', 'supported', -8.6), ('qwen2.5-coder-1.5b', 'supported', -17.1)]
        """
        found = read_claims(self.folder)
        rows = [
            {"claim": row["claim"], "statement": found["statements"][str(row["claim"])]}
            | {name: row[name] for name in CLAIM_COLUMNS}
            for row in found["claims"]
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def answers(self, model: str | None = None, dataset: str | None = None) -> pl.DataFrame:
        """What the models answered, one row per question that was asked; of one model or dataset, or of all.

        `right` is null for a refusal. `analysed` says whether the answer was measured (a balanced choice is). `anchor`
        is "question" where the verdict flips at the layer where the Question-Anchored curve is deepest, else "answer",
        by the published rule; null where nothing was measured.

        >>> answers = run.answers("smollm2-135m", "nq-mini")
        >>> answers.columns[:6]
        ['model', 'dataset', 'id', 'question', 'answer', 'right']
        >>> measured = answers.filter("analysed")
        >>> int(measured["right"].sum()) == measured.height / 2
        True
        """
        for name, value in (("model", model), ("dataset", dataset)):
            if value is not None:
                self._check(name, value)
        models, datasets = [model] if model else self.models, [dataset] if dataset else self.datasets
        deepest = self._table("deepest").filter(intervention=EXACT)
        anchor = pl.when("question_anchored").then(pl.lit("question")).otherwise(pl.lit("answer"))
        anchored = deepest.select("model", "dataset", "id", anchor=anchor)
        given = pl.concat([self._answers(model, dataset) for model in models for dataset in datasets])
        return given.join(anchored, on=["model", "dataset", "id"], how="left", maintain_order="left").select(
            *("model", "dataset", *SAID, "analysed", "anchor", *ABOUT_QUESTIONS)
        )

    def _answers(self, model: str, dataset: str) -> pl.DataFrame:
        given, chosen = (
            pl.concat([read_frame(file, columns) for file in self._shards(stage, model, dataset, ".parquet")])
            for stage, columns in (("answers", [*SAID, *ABOUT_QUESTIONS]), ("chosen", ["id"]))
        )
        analysed = pl.col("id").is_in(chosen["id"].implode())
        return given.with_columns(model=pl.lit(model), dataset=pl.lit(dataset), analysed=analysed)

    def delta(
        self,
        model: str,
        dataset: str,
        *,
        component: str | None = None,
        position: str | None = None,
        intervention: str = EXACT,
        raw: bool = False,
    ) -> pl.DataFrame:
        """What cutting the question's exact words does to the probe's confidence: one row per example and layer.

        Folds are drawn several times; numbers are means over these repeats, and `flips` is the share of repeats in
        which the verdict changes. `raw` gives a row for each repeat instead. Where `intervention` cuts nothing, what
        it did is null. Component and position are the headline's unless others are named.

        >>> delta = run.delta("smollm2-135m", "nq-mini")
        >>> curve = delta.group_by("layer", maintain_order=True).agg(pl.mean("delta_p"))
        >>> control = run.delta("smollm2-135m", "nq-mini", intervention="random_question")
        >>> control.select("id", "layer").equals(delta.select("id", "layer"))
        True
        """
        self._check_pair(model, dataset)
        file = self._file("delta", model, f"{dataset}.parquet")
        enough(too_few(file))
        rows = read_frame(file)
        place = self._place(component, position)
        check_known(str(file), "intervention", intervention, rows["intervention"].unique(maintain_order=True).to_list())
        chosen = rows.filter(**vars(place), intervention=intervention)
        return chosen if raw else _over_repeats(chosen)

    def activations(
        self,
        model: str,
        dataset: str,
        *,
        layer: int | None = None,
        component: str | None = None,
        position: str | None = None,
        prompt: str = CLEAN[0],
        intervention: str = CLEAN[1],
    ) -> Activations:
        """Hidden states of every analysed example, all shards together, with the labels that probes learn.

        Only the named layer is read; without one, all are, which takes as much memory. The prompt is "first", under
        which the answer was given, or "second". Where `intervention` cuts nothing, values are NaN. Component and
        position are the headline's unless others are named.

        >>> states = run.activations("smollm2-135m", "nq-mini", layer=1)
        >>> X, y = states.values, states.hallucinated
        >>> X.ndim, len(X) == len(y) == len(states.ids)
        (2, True)
        >>> cut = run.activations("smollm2-135m", "nq-mini", layer=1, intervention="exact_question")
        >>> moved = np.linalg.norm(cut.values - X, axis=1)
        """
        self._check_pair(model, dataset)
        knockout, place = self._knockout(prompt, intervention), self._place(component, position)
        files = self._shards("activations", model, dataset, f"/{place.component}.{place.position}.parquet")
        from anchorscope.extract.store import open_activations  # which needs torch: slow to import

        reader = open_activations(files, place.grid(), list(dict.fromkeys([EXACT, knockout])))
        if layer is not None:
            check_whole("layer", layer, least=0, most=reader.layers - 1)
        layers = range(reader.layers) if layer is None else range(layer, layer + 1)
        values = reader.read(place.component, place.position, prompt, intervention, layers).float().numpy()
        if intervention != CLEAN[1]:
            values[:, ~reader.cuts(knockout)] = np.nan
        return Activations(
            ids=np.array([key["id"] for key in reader.keys]),
            values=values if layer is None else values[0],
            hallucinated=np.array([not key["right"] for key in reader.keys], bool),
            cluster=np.array([key["subject"] or key["id"] for key in reader.keys]),
        )

    def probe(
        self,
        model: str,
        dataset: str,
        layer: int,
        *,
        component: str | None = None,
        position: str | None = None,
        probe: str = FULL.name,
    ) -> ProbeWeights:
        """The probes of one layer, one for each draw of folds and each fold that it did not learn from.

        `probe` is "full", or one of those behind the honest rule: "half_a", "half_b" and "second_b". Component and
        position are the headline's unless others are named.

        >>> probe = run.probe("smollm2-135m", "nq-mini", layer=1)
        >>> states = run.activations("smollm2-135m", "nq-mini", layer=1)
        >>> logits = states.values @ probe.weight.mean((0, 1)) + probe.bias.mean()
        >>> logits.shape == states.ids.shape
        True
        """
        self._check_pair(model, dataset)
        place = self._place(component, position)
        file = self._file("probes", model, dataset, f"{place.component}.{place.position}.parquet")
        from anchorscope.probe.kept import load_probes  # which needs torch: slow to import

        kept = load_probes(file)
        check_known(str(file), "probe", probe, kept.weight)
        check_whole("layer", layer, least=0, most=kept.strength.shape[1] - 1)
        return ProbeWeights(kept.weight[probe][:, layer], kept.bias[probe][:, layer])

    def detector(self, model: str) -> "Detector":
        """The detector that `anchorscope run detectors` trained; `score` says how likely answers are hallucinated."""
        self._check("model", model)
        file = self._file("detectors", f"{model}.safetensors")
        from anchorscope.detect.detector import load_detector  # which needs torch: slow to import

        return load_detector(file)

    def plot(
        self,
        kind: str = "family",
        models: NamesShown | None = None,
        datasets: NamesShown | None = None,
        *,
        column: bool = False,
        style: Path | str | None = None,
    ) -> "Figure":
        """Draw a kind of figure, which `figures` lists.

        `models` and `datasets` are some names, or names with the titles to show; without them, all are shown. The
        figure is as wide as a page, or as a `column` of 3.3 inches. `style` is the name of one of matplotlib's styles
        or a style file; without it, the bundled one, and what `rcParams` or `plt.style.context` change. A notebook
        shows the figure if it is the last value of a cell.

        >>> figure = anchorscope.open("docs/gallery").plot("family")
        >>> [panel.get_title() for panel in figure.axes]
        ['SmolLM2-135M-Instruct', 'Qwen2.5-Coder-1.5B-Instruct']
        >>> figure.savefig("family.png", dpi=300)
        """
        check_known("The run", "figure", kind, self.figures)
        models_shown, datasets_shown = self._titles("model", models), self._titles("dataset", datasets)
        import matplotlib.pyplot as plt  # like the next ones, slow to import

        from anchorscope.draw.functions import draw_figure
        from anchorscope.draw.style import changed_settings, read_style
        from anchorscope.draw.view import View
        from anchorscope.summarise.wording import unprobed

        table = "detection" if kind in [one.name for one in DETECTION_KINDS] else "summary"
        note = unprobed(made_from(self._file(f"{table}.parquet")), models_shown, datasets_shown)
        read = read_style(style, column=column, changed=changed_settings())
        on_screen = replace(read, params=read.params | {"savefig.dpi": plt.rcParams["figure.dpi"]})
        view = View(models_shown, datasets_shown, headline=self._headline, note=note, style=on_screen)
        figure = draw_figure(kind, _Tables(self), view)
        plt.figure(figure)  # a notebook's backend learns to show figures when it gets the first
        plt.close(figure)
        return figure

    def _table(self, name: str) -> pl.DataFrame:
        return self.summary() if name == "summary" else read_frame(self._file(f"{name}.parquet"))

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        return names_in_order(self.folder, self.record)

    @property
    def _headline(self) -> Headline:
        return Headline(**self.record["config"]["headline"])

    @property
    def _grid(self) -> Grid:
        """What was kept and probed."""
        config = self.record["config"]
        return Grid.of(*(config.get(f"{name}s", [place]) for name, place in vars(self._headline).items()))

    def _place(self, component: str | None, position: str | None) -> Headline:
        """A component and a position, the headline's where none is named."""
        usual = self._headline
        place = Headline(
            usual.component if component is None else component, usual.position if position is None else position
        )
        check_known("The run", "component", place.component, self._grid.components)
        check_known("The run", "position", place.position, self._grid.positions)
        return place

    def _knockout(self, prompt: str, intervention: str) -> str:
        """Whose files have what was run under a prompt with an intervention."""
        config = self.record["config"]
        knockouts = knockouts_of(config["interventions"], config["windows"])
        runs = {run: knockout for knockout in knockouts for run in passes_of(knockout)}
        check_known("The run", "prompt", prompt, list(dict.fromkeys(name for name, _ in runs)))
        check_known(f"The {prompt} prompt", "intervention", intervention, [two for one, two in runs if one == prompt])
        return runs[prompt, intervention]

    def _check(self, kind: str, name: str) -> None:
        """Refuse a model or dataset that was not run."""
        check_known("The run", kind, name, self._named[kind])

    def _check_pair(self, model: str, dataset: str) -> None:
        """The same of both, where a salmon counts as its model."""
        self._check("model", model.removesuffix(SALMON) if isinstance(model, str) else model)
        self._check("dataset", dataset)

    def _titles(self, kind: str, names: NamesShown | None) -> dict[str, str]:
        """Return names with the titles to show: as given, or as in the config."""
        titles = {name: self.record["config"][f"{kind}s"][name]["title"] for name in self._named[kind]}
        return choose_titles("The run", kind, names, titles)

    def _file(self, *parts: str) -> Path:
        return file_of_run(self.folder, *parts)

    def _shards(self, stage: str, model: str, dataset: str, ending: str) -> list[Path]:
        """The files of all shards."""
        config = self.record["config"]
        count = -(-config["questions"] // config["shard_size"])
        return [self._file(stage, model, dataset, *f"{number:04d}{ending}".split("/")) for number in range(count)]


def _few(names: Collection[str], most: int = 6) -> str:
    """Some names, and that there are more."""
    return ", ".join([*list(names)[:most], *["…"] * (len(names) > most)])


def _over_repeats(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per layer and example, in which numbers are means."""
    numbers = ["p_clean", "p_ko", "delta_p", "flips", "logit_clean_full", "logit_ko_full", "distance"]
    about = ["cluster", "popularity", "question_form", "answer_form", "answer_in_question"]
    return rows.group_by("id", "layer", maintain_order=True).agg(
        pl.first("hallucinated"), pl.col(numbers).mean(), pl.col(about).first()
    )
