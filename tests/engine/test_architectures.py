"""docs/architectures.csv says what its script finds: here for a few architectures, and with --all for every one."""

import csv
import re
from functools import cache

import pytest
import transformers
from transformers.utils import logging

from architectures import IMAGE_MODELS, architectures, compare, exact_to, judge, row, small_image_model
from small_things import ROOT

# One of each kind: packed, with latent attention, with layers that share keys, with code of its own for attention, with
# sinks, with layers that have no attention, with several residual streams, with views of what attention gives.
MEASURED = ("opt", "deepseek_v3", "gemma3n_text", "bloom", "gpt_oss", "jamba", "hy_v4", "jetmoe")
# With states of its own beside the text's, with attention to sums of tokens, with layers that run several times,
# without a module for a layer, with convolutions in attention.
REFUSED = ("cpmant", "deepseek_v4", "hrm_text", "xlm", "zaya")
SAMPLE = MEASURED + REFUSED


@cache
def text() -> str:
    return (ROOT / "docs/architectures.md").read_text(encoding="utf-8")


@cache
def rows() -> dict[str, dict[str, str]]:
    with (ROOT / "docs/architectures.csv").open(encoding="utf-8", newline="") as lines:
        return {row["architecture"]: row for row in csv.DictReader(lines)}


def section(heading: str) -> str:
    return text().partition(f"## {heading}\n")[2].partition("\n## ")[0]


def is_exact(row: dict[str, str]) -> bool:
    return max(float(row[name]) for name in ("clean", "knockout", "window")) < exact_to() and row["answers"] == "equal"


@pytest.fixture(autouse=True)
def quiet():
    logging.set_verbosity_error()


@pytest.mark.parametrize(
    "kind", [kind if kind in SAMPLE else pytest.param(kind, marks=pytest.mark.slow) for kind in architectures()]
)
def test_the_table_says_what_the_script_finds(kind):
    verdict, said = judge(kind), rows()[kind]
    if verdict.not_built:
        assert said["path"] == "not tried"
        assert re.search(rf"\b{kind}\b", section("Not tried"))
    elif verdict.refused:
        assert (said["path"], said["why"]) == ("refused", verdict.refused)
        (line,) = re.findall(rf"^- .*\b{kind}\b.*: (.*)$", section("Refused"), re.M)
        assert verdict.refused.endswith(line)
    else:
        assert row(verdict)[1:4] == [said[name] for name in ("path", "without", "components")]
        assert verdict.found.exact == is_exact(said)


@pytest.mark.parametrize("kind", ["gemma3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in IMAGE_MODELS[1:])])
def test_the_text_model_of_a_model_for_images_is_measured(kind):
    found = compare(small_image_model(kind))
    assert found.exact
    assert rows()[f"{kind}, whole"]["path"] == found.path


def test_most_architectures_that_can_be_built_are_exact():
    listed, built, exact, packed, plain = map(
        int, re.search(r"Of (\d+) .*?, (\d+) could.* (\d+) of .*?: (\d+) on .*\n(\d+) on", text()).groups()
    )
    tried = [row for kind, row in rows().items() if "whole" not in kind and row["path"] != "not tried"]
    exact_rows = [row for row in tried if row["path"] != "refused" and is_exact(row)]
    assert len(tried) == built
    assert sum("whole" not in kind for kind in rows()) == listed
    assert sum(row["path"] == "packed" for row in exact_rows) == packed
    if f"transformers {transformers.__version__} " in text():  # others know of more architectures, or of fewer
        assert listed == len(architectures())
    assert len(exact_rows) == exact == packed + plain
    assert exact >= 60
    assert exact >= 0.9 * built
    assert packed >= 40
