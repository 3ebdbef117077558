"""Every experiment has a section with its figure, what it shows, its verdicts and its numbers."""

import re

import pytest

from anchorscope.draw.registry import FIGURE_KINDS
from anchorscope.experiments import READS
from anchorscope.experiments.catalogue import EXPERIMENTS
from anchorscope.report.claims import experiment_verdicts, model_claims
from anchorscope.report.experiments import experiment_numbers, experiment_section
from anchorscope.report.figures import Link, Picture
from experiment_tables import make_experiments

TABLES = make_experiments({"small": 3}, ["popqa"])
NUMBERS = dict(zip(EXPERIMENTS, (7, 8, 9, 10, 11), strict=True))


def claims() -> dict:
    parts = [{"title": "Q minus A", "verdict": "undecided", "effect": 12.34, "low": -1.0, "high": 25.0}]
    rows = [
        {"claim": number, "model": "small", "dataset": "popqa", "logits": "measured", "rule": rule, "parts": parts}
        | {"verdict": "undecided", "effect": 12.34, "low": -1.0, "high": 25.0, "because": None, "in_logits": None}
        for number in NUMBERS.values()
        for rule in ("flip", "honest")
    ]
    return {"claims": rows}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_section_has_figure_explanation_and_numbers_and_opens_with_its_verdicts(name):
    kind = next(kind for kind in FIGURE_KINDS if kind.name == name)
    picture = Picture(kind, "Small", source="data:,wide", narrow="data:,narrow", files=[Link("figures/x.png", "x.png")])
    models = {"small": "Small <1B>"}
    html = str(experiment_section(name, TABLES[name], [picture], models, datasets={"popqa": "P"}))
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert kind.caption.replace("'", "&#39;") in html
    assert EXPERIMENTS[name].shown.split("`")[0].split("'")[0].split("\n")[0] in text
    claim = EXPERIMENTS[name].claim
    assert experiment_verdicts(claim, claims()["claims"], models) == (
        f"Claim {NUMBERS[name]}, {claim.statement}: undecided for Small <1B>."
    )
    judged = model_claims(claims()["claims"], "small", {}, {"small": "Small"}, {"popqa": "P"})
    flip, honest = next(one["lines"] for one in judged if one["claim"] == claim)
    assert (flip["about"], honest["about"]) == ("P, flip", "P, honest")
    assert (honest["part"], honest["verdict"]) == ("Q minus A", "undecided")
    assert (honest["text"], honest["interval"]) == ("+12.3", "−1.0 … 25.0")
    assert html.count("<tr>") == 1 + len(experiment_numbers(TABLES[name]))


def test_a_model_with_one_probed_dataset_is_not_left_out_beside_a_model_with_several():
    claim = EXPERIMENTS["patching"].claim
    verdicts = {("small", "popqa"): "supported", ("large", "popqa"): "contradicted", ("large", None): "undecided"}
    rows = [
        {**claims()["claims"][0], "model": model, "dataset": dataset, "rule": "honest", "verdict": verdict, "parts": []}
        for (model, dataset), verdict in verdicts.items()
    ]
    titles = {"small": "Small", "large": "Large"}
    assert experiment_verdicts(claim, rows, titles).endswith(": supported for Small; undecided for Large.")
    shown = {model: model_claims(rows, model, {}, titles, {"popqa": "P"})[0] for model in titles}
    assert [line["verdict"] for line in shown["small"]["lines"]] == ["supported"]
    assert [line["verdict"] for line in shown["large"]["lines"]] == ["undecided"]
    assert [line["verdict"] for line in shown["large"]["by_dataset"]] == ["contradicted"]


def test_the_workflow_knows_every_experiment_and_its_claim_has_its_name():
    assert list(READS) == list(EXPERIMENTS) == [experiment.claim.name for experiment in EXPERIMENTS.values()]


def test_numbers_are_means_over_layers_with_the_groups_side_by_side():
    rows = experiment_numbers(TABLES["patching"]).to_dicts()
    assert len(rows) == 3 * 2, "conditions and rules"
    assert rows[0]["Q"] == "40.0 (37.0 … 43.0)"
    assert rows[0]["A"] == "10.0 (7.0 … 13.0)"
    assert "rule" not in experiment_numbers(TABLES["saliency"]).columns
