"""The gallery's page, tables and figures belong together: all are of one run, and say what its tables say."""

import json
import re

import numpy as np
import polars as pl
import pytest

from anchorscope import api
from anchorscope.files.frames import read_frame
from anchorscope.files.sealed_parquet import check, made_from
from anchorscope.summarise.wording import signed, signed_between
from gallery import GALLERY, TABLES, config, figures, titles
from small_things import ROOT

PAGE = (ROOT / "docs/gallery.md").read_text(encoding="utf-8")
CLAIMS = json.loads((GALLERY / "claims.json").read_text(encoding="utf-8"))
PROVENANCE = json.loads((GALLERY / "provenance.json").read_text(encoding="utf-8"))
PUBLISHED = {
    "anchor": "gap",
    "rule": "flip",
    "labels": "plotted",
    "intervention": "exact_question",
    "logits": "measured",
}
POSITION = re.compile(r"-?\d+(?:\.\d+)?")
STYLED = re.compile(r"<style>.*?</style>")


def of_model(model: str) -> str:
    """The part of the page about a model."""
    return PAGE.split(f"## {titles('models')[model]}\n")[1].split("\n## ")[0]


def cells(model: str) -> dict[str, list[str]]:
    """The rows of a model's table by their names."""
    rows = [line.strip("| ").split(" | ") for line in of_model(model).splitlines() if line.startswith("| ")]
    return {name: values for name, *values in rows}


def gap(model: str, dataset: str | None, logits: str) -> str:
    """The first claim's effect with its interval."""
    wanted = {"claim": 1, "model": model, "dataset": dataset, "logits": logits}
    (row,) = [row for row in CLAIMS["claims"] if wanted.items() <= row.items()]
    return f"{signed(row['effect'])} ({signed_between(row['low'], row['high'])})"


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_whole_and_of_the_run_whose_provenance_lies_beside_it(name):
    check(GALLERY / f"{name}.parquet")
    made = made_from(GALLERY / f"{name}.parquet")
    assert made["models"] == PROVENANCE["models"]
    assert set(read_frame(GALLERY / f"{name}.parquet")["dataset"]) == set(PROVENANCE["datasets"])


def test_the_config_is_the_one_that_was_run_but_for_titles():
    run, said = PROVENANCE["config"], config()
    assert {key: run[key] for key in said} | {"models": ..., "datasets": ...} == said | {"models": ..., "datasets": ...}
    for kind in ("models", "datasets"):
        untitled = [{**entry, "title": ""} for one in (run, said) for entry in map(one[kind].get, said[kind])]
        assert untitled[: len(said[kind])] == untitled[len(said[kind]) :]


def test_the_figures_are_drawn_from_the_tables():
    """Words are the same, positions to a tenth of a point: fonts are measured a little differently elsewhere."""
    drawn = dict(figures())
    assert set(drawn) == {path.name for path in GALLERY.glob("*.svg")}
    for name, svg in drawn.items():
        kept = (GALLERY / name).read_text(encoding="utf-8").strip()
        old, new = (STYLED.sub("", text) for text in (kept, svg))
        assert POSITION.sub("0", old) == POSITION.sub("0", new), name
        positions = [np.array(POSITION.findall(text), dtype=float) for text in (old, new)]
        np.testing.assert_allclose(*positions, atol=0.1, err_msg=name)


def test_the_page_shows_every_figure_and_says_whose_it_is():
    shown = dict(re.findall(r"!\[([^]]+)\]\(gallery/([^)]+)\)", PAGE))
    assert set(shown.values()) == {path.name for path in GALLERY.glob("*.svg")}
    for caption, name in shown.items():
        for model, title in titles("models").items():
            if model in name:
                assert all(word in caption for word in ("four-bit", title.removesuffix("-Instruct, four-bit"))), name


@pytest.mark.parametrize("model", config()["models"])
def test_the_tables_on_the_page_say_what_the_runs_tables_say(model):
    datasets, found = list(config()["datasets"]), cells(model)
    kinds = {row["dataset"]: row for row in CLAIMS["kinds"] if row["model"] == model}
    summary = read_frame(GALLERY / "summary.parquet").filter(model=model, **PUBLISHED)
    assert found["examples"] == [str(kinds[dataset]["n"]) for dataset in datasets]
    assert found["published rule"] == [signed(summary.filter(dataset=name)["delta_p"].mean()) for name in datasets]
    assert found["honest"] == [gap(model, name, "measured") for name in datasets]
    assert found["honest, without the push"] == [gap(model, name, "recentred") for name in datasets]
    assert found["one kind or two"] == [kinds[name]["verdict"] for name in datasets]


@pytest.mark.parametrize("model", config()["models"])
def test_the_three_gaps_of_a_model_are_those_of_the_run(model):
    numbers = CLAIMS["numbers"][model]
    published = signed(numbers["published"])
    left = {name: signed(numbers[name][0]) for name in ("honest", "recentred")}
    prose = of_model(model).split("\n|")[0]
    assert re.findall(r"−\d+\.\d", prose) == [published, *left.values()]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert published in readme
    for name, number in left.items():
        assert f"{number} ({signed_between(*numbers[name][1:])})" in readme


def test_the_gallery_is_small_and_has_no_question_in_it():
    """Ids, numbers and forms; texts of published questions are under licences of their own."""
    assert sum(path.stat().st_size for path in GALLERY.iterdir()) <= 3_000_000
    for name in TABLES:
        for column in read_frame(GALLERY / f"{name}.parquet").iter_columns():
            if column.dtype == pl.String:
                assert column.str.len_chars().max() <= 40, (name, column.name)


def test_the_summary_is_loaded_and_drawn_before_anybody_has_run_anything():
    summary = api.load_summary(GALLERY / "summary.parquet")
    figure = api.plot_family(summary, titles("models"), titles("datasets"))
    assert [panel.get_title().replace("\n", " ") for panel in figure.axes] == list(titles("models").values())
