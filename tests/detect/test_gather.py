"""The comparison for all models and datasets: what was not probed is said, and what was published stands beside it."""

import polars as pl
import pytest
import yaml

from anchorscope.detect.compare import Described, gather_detection, mean_transfer
from anchorscope.detect.scoring import TRANSFER
from detection_scores import BY_DEFAULT, make_scores, make_transfer, write_scores
from small_things import ROOT

LLAMA = {"weights": "trained", "source": {"hub": "meta-llama/Meta-Llama-3-8B"}}
SHAPE = {"weights": "random", "source": {"random": {"config": "shape.json"}}}
PUBLISHED = yaml.safe_load((ROOT / "workflow/resources/landmarks.yaml").read_text())["detection"]
RUN = Described(
    models={"llama": LLAMA, "shape": SHAPE, "wrong": SHAPE},
    sources={"pop": "hub", "mini": "bundled"},
    layouts={"pop": "popqa", "mini": "nq"},
    published=PUBLISHED,
)
UNPROBED = [("shape", "mini"), ("wrong", "pop"), ("wrong", "mini")]  # of one model nothing could be probed


@pytest.fixture(scope="module")
def gathered(tmp_path_factory) -> tuple[dict[str, pl.DataFrame], dict]:
    folder = tmp_path_factory.mktemp("scores")
    files = {
        (model, dataset): write_scores(folder / model / f"{dataset}.parquet", make_scores(seed=number))
        for number, (model, dataset) in enumerate([("llama", "pop"), ("llama", "mini"), ("shape", "pop")])
    }
    empty = make_scores().clear()
    for model, dataset in UNPROBED:
        file = folder / model / f"{dataset}.parquet"
        files[model, dataset] = write_scores(file, empty, not_probed="3 right are too few.")
    transfers = {
        model: write_scores(folder / f"{model}.parquet", make_transfer(datasets))
        for model, datasets in {"llama": ["pop", "mini"], "shape": ["pop"], "wrong": []}.items()
    }
    return gather_detection(files, transfers, RUN)


def test_every_table_has_all_probed_pairs_and_says_what_they_are(gathered):
    tables, about = gathered
    assert set(tables) == {"detection", "transfer", "reliability", "coverage", "pathways"}
    beginning = ["model", "weights", "dataset", "source"]
    expected = {("llama", "trained", "pop", "hub"), ("llama", "trained", "mini", "bundled")}
    for name, table in tables.items():
        assert table.columns[:4] == beginning, name
        assert set(table.select(beginning).rows()) == {*expected, ("shape", "random", "pop", "hub")}, name
    assert about["not_probed"] == [[*pair, "3 right are too few."] for pair in UNPROBED]


def test_at_home_stands_what_the_table_of_methods_has(gathered):
    detection, transfer = gathered[0]["detection"], gathered[0]["transfer"]
    columns = ["model", "dataset", "method", "n", "auc", "auc_low", "auc_high"]
    home = transfer.filter(pl.col("trained_on") == pl.col("dataset"))
    assert home.select(columns).rows() == detection.select(columns).rows()
    assert set(transfer.filter(model="shape")["trained_on"]) == {"pop"}, "nothing else was probed"


def test_what_was_published_stands_beside_that_model_on_those_questions_and_nowhere_else(gathered):
    known = gathered[0]["detection"].drop_nulls("published")
    assert set(known.select("model", "dataset").rows()) == {("llama", "pop")}
    assert dict(known.select("method", "published").iter_rows()) == {
        "p_true": 0.559,
        "mean_logprob": 0.745,
        "min_logprob": 0.854,
        "probe": 0.887,
        "mop": 0.921,
        "pr": 0.94,
    }


def test_the_published_numbers_are_of_known_methods_and_layouts():
    for methods in PUBLISHED.values():
        assert set(methods) <= set(BY_DEFAULT)
        assert all(list(areas) == ["popqa", "triviaqa", "hotpotqa", "nq"] for areas in methods.values())


def test_what_carries_over_is_the_mean_elsewhere_and_the_drop_from_home():
    rows = [("probe", "a", "a", 0.9), ("probe", "b", "b", 0.7), ("probe", "a", "b", 0.65), ("probe", "b", "a", 0.55)]
    rows += [("probe", "others", "a", 0.5), ("probe", "others", "b", 0.6)]
    ends = [(*row[:3], 100, 0, row[3], row[3] - 0.1, row[3] + 0.1) for row in rows]
    transfer = pl.DataFrame(ends, schema=TRANSFER, orient="row").with_columns(model=pl.lit("m"))
    (found,) = mean_transfer(transfer).rows()
    assert found[:2] == ("m", "probe")
    assert found[2:] == pytest.approx((0.8, 0.6, 0.55, 0.2)), "at home, elsewhere, from all others, and the drop"


def test_with_one_dataset_there_is_nothing_to_carry_over(gathered):
    assert set(mean_transfer(gathered[0]["transfer"])["model"]) == {"llama"}


def test_a_run_in_which_nothing_was_probed_says_why(tmp_path):
    empty = write_scores(tmp_path / "one.parquet", make_scores().clear(), not_probed="3 right are too few.")
    with pytest.raises(ValueError, match=r"Nothing could be probed\. 3 right are too few\."):
        gather_detection({("llama", "pop"): empty}, {}, RUN)
