"""The section on detection: its sentences and cells are those of the tables, and its links lead to the files."""

import re

import polars as pl
import pytest

from anchorscope.detect.methods import METHOD_TITLES
from anchorscope.draw.registry import DETECTION_KINDS, KINDS
from anchorscope.report.detection import area_rows, balance, detection_section, sentences
from anchorscope.report.figures import Link, Picture
from detection_scores import BY_DEFAULT, make_detection

MODELS = {"small": "Small <1B>", "other": "Other"}
DATASETS = {"popqa": "PopQA", "nq": "NQ", "odd": "Odd"}
MISSING = ("small", "odd")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, pl.DataFrame]:
    weights = dict.fromkeys(MODELS, "trained")
    return make_detection(tmp_path_factory.mktemp("scores"), weights, list(DATASETS), MISSING)[0]


@pytest.fixture
def own(tables) -> dict[str, pl.DataFrame]:
    return {name: table.filter(model="small") for name, table in tables.items()}


def test_the_section_has_sentences_figures_tables_and_links(tables):
    pictures = [
        Picture(kind, "Small", "data:,wide", "data:,narrow", [Link("x.png", "x.png")]) for kind in DETECTION_KINDS
    ]
    html = str(
        detection_section(
            tables,
            pictures,
            MODELS,
            DATASETS,
            files=[Link("detection.parquet", "detection.parquet")],
            detectors=[
                Link("detectors/small.safetensors", "small.safetensors"),
                Link("detectors/small.md", "small.md"),
            ],
        )
    )
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "Small &lt;1B&gt; PopQA: stacked layers ranks best" in text
    assert "Half of the answers are hallucinated, as the examples are balanced." in text
    for kind in DETECTION_KINDS:
        assert kind.caption in text
        assert KINDS[kind.name] is kind
    for address in ("detection.parquet", "detectors/small.safetensors", "detectors/small.md"):
        assert f'<a href="{address}">' in html
    pairs = 5  # of two models and three datasets, less one
    pathways, carried, everything = 12 * pairs, 2 * 19, len(BY_DEFAULT) * pairs
    assert html.count("<tr>") == 5 + 2 * len(BY_DEFAULT) + pathways + carried + everything
    assert "published" not in text


def test_published_numbers_are_shown_where_there_are_any(tables):
    known = tables | {"detection": tables["detection"].with_columns(published=pl.lit(0.887))}
    html = str(detection_section(known, [], MODELS, DATASETS, files=[], detectors=[]))
    assert "published AUC" in html
    assert "<td>0.887</td>" in html


def test_the_best_method_is_named_with_its_gain_and_whether_that_may_be_chance(own):
    rows = own["detection"].filter(dataset="popqa")
    best = max(rows.to_dicts(), key=lambda row: row["auc"])
    sentence = sentences(own, DATASETS)[0]
    assert sentence.startswith(f"PopQA: {METHOD_TITLES[best['method']]} ranks best, with an AUC of {best['auc']:.2f} (")
    assert (best["gain_low"] > 0) == sentence.endswith("more than chance explains.")
    level = rows.with_columns(gain_low=pl.col("gain") - 0.5)
    unsure = sentences(own | {"detection": level}, DATASETS)[0]
    assert unsure.endswith("above the plain probe, which may be chance.")
    assert len([one for one in sentences(own, DATASETS) if one.startswith("Odd")]) == 0, "it was not probed"


def test_pathways_help_only_where_all_rivals_are_beaten(own):
    helps = own["pathways"].with_columns(
        helps=pl.when(method="pr").then(pl.lit("yes")).when(method="mop", dataset="nq", against="ensemble")
        .then(pl.lit("no")).otherwise(pl.lit("undecided"))
    )  # fmt: skip
    said = sentences(own | {"pathways": helps}, DATASETS)[-2]
    assert said == (
        "Does it help to know pathways? MoP: no on NQ; undecided on PopQA. MoP, honest: undecided on all 2 datasets. "
        "PR: yes on all 2 datasets. PR, honest: undecided on all 2 datasets."
    )


def test_what_carries_over_is_told_of_the_probe_and_of_the_best_trained_method(own):
    home = own["detection"].filter(method="probe")["auc"].mean()
    elsewhere = 0.6 - BY_DEFAULT.index("probe") / 1000
    expected = f"is {home:.2f} on the dataset that it was trained on, {elsewhere:.2f} on another"
    said = sentences(own, DATASETS)[-1]
    assert expected in said
    assert said.endswith("Of the trained methods, length of the answer does best on another, with 0.60.")


def shared(transfer: pl.DataFrame, left_out: pl.Expr, untaught: pl.Expr) -> pl.DataFrame:
    """The same where so many examples were left out of training, and where too few were left."""
    area_rows = (
        pl.when(untaught).then(None).otherwise(pl.col(name)).alias(name) for name in ("auc", "auc_low", "auc_high")
    )
    return transfer.with_columns(left_out.cast(pl.Int64).alias("left_out"), *area_rows)


def test_it_says_how_many_were_left_out_of_training_and_where_too_few_were_left(own):
    to_nq = (pl.col("trained_on") == "popqa") & (pl.col("dataset") == "nq")
    others = pl.col("trained_on") == "others"
    numbers = pl.when(to_nq).then(7).when(others).then(12).otherwise(0)
    said = sentences(own | {"transfer": shared(own["transfer"], numbers, pl.lit(False))}, DATASETS)[-1]
    told = (
        "Up to 12 examples were left out of training, because the tested dataset has their question or their subject."
    )
    assert said.endswith(told)
    said = sentences(own | {"transfer": shared(own["transfer"], numbers, to_nq)}, DATASETS)[-1]
    assert said.endswith(f"{told} Too few were left to learn from: PopQA for NQ.")


def test_where_datasets_share_everything_it_says_that_nothing_can_be_carried_over(tables):
    elsewhere = pl.col("trained_on") != pl.col("dataset")
    copies = tables | {"transfer": shared(tables["transfer"], 120 * elsewhere, elsewhere)}
    html = str(detection_section(copies, [], MODELS, DATASETS, files=[], detectors=[]))
    assert html.count("too few other examples are left to learn from: nothing can be carried over.") == 3


def test_with_one_dataset_it_says_that_there_is_nothing_to_carry_over(tmp_path):
    tables, _ = make_detection(tmp_path, {"small": "trained"}, ["popqa"])
    html = str(detection_section(tables, [], {"small": "Small"}, {"popqa": "PopQA"}, files=[], detectors=[]))
    assert html.count("There is one dataset, so there is nothing to carry over.") == 2


def test_a_method_that_differs_from_the_probe_is_marked(own):
    rows = {row["method"]: row for row in own["detection"].filter(dataset="nq").to_dicts()}
    shown = dict(area_rows(own, DATASETS).select("method", "NQ").iter_rows())
    assert list(shown) == [METHOD_TITLES[name] for name in BY_DEFAULT]
    ends = {"▲": lambda row: row["gain_low"] > 0, "▼": lambda row: row["gain_high"] < 0}
    for name, row in rows.items():
        text = shown[METHOD_TITLES[name]]
        assert text.startswith(f"{row['auc']:.2f} ({row['auc_low']:.2f} … {row['auc_high']:.2f})")
        for mark, differs in ends.items():
            assert (mark in text) == (name != "probe" and differs(row)), name
    assert any("▼" in text for text in shown.values())


def test_classes_that_are_not_balanced_are_named(own):
    shares = own["detection"].with_columns(hallucinated_share=pl.when(dataset="nq").then(0.31).otherwise(0.5))
    assert balance(shares) == "Between 31 and 50 % of the answers are hallucinated."
