"""docs/architectures.md says what its script finds: here for a few architectures, and with --all for every one."""

import re
from functools import cache

import pytest
import transformers
from transformers.utils import logging

from architectures import IMAGE_MODELS, architectures, compare, judge, small_image_model
from small_things import ROOT

# One of each kind: packed, with latent attention, with layers that share keys, with code of its own for attention, with
# sinks, with layers that have no attention, with several residual streams.
MEASURED = ("opt", "deepseek_v3", "gemma3n_text", "bloom", "gpt_oss", "jamba", "hy_v4")
# With states of its own beside the text's, with attention to sums of tokens, with layers that run several times,
# without a module for a layer, with convolutions in attention.
REFUSED = ("cpmant", "deepseek_v4", "hrm_text", "xlm", "zaya")
SAMPLE = MEASURED + REFUSED
CELLS = (r"([\w, -]+)", r"(packed|plain, \w+)", r"(\d*)", r"([\w, ]+)", *[r"(\d\S+)"] * 3, "(.+)")
ROW = re.compile("^" + r"\| " + r" \| ".join(CELLS) + r" \|$", re.MULTILINE)


@cache
def text() -> str:
    return (ROOT / "docs/architectures.md").read_text(encoding="utf-8")


def rows() -> dict[str, tuple[str, ...]]:
    return {kind: tuple(others) for kind, *others in ROW.findall(text())}


@pytest.fixture(autouse=True)
def quiet():
    logging.set_verbosity_error()


@pytest.mark.parametrize(
    "kind", [kind if kind in SAMPLE else pytest.param(kind, marks=pytest.mark.slow) for kind in architectures()]
)
def test_the_page_says_what_the_script_finds(kind):
    verdict = judge(kind)
    if verdict.not_built:
        assert kind in text().rpartition("## Not tried")[2]
    elif verdict.refused:
        assert f"- {kind}: {verdict.refused}" in text()
    else:
        found = verdict.found
        path, without, components, *differences, answers = rows()[kind]
        assert (path, without, components) == (found.path, str(found.without_attention or ""), found.components)
        assert found.exact == (max(map(float, differences)) < 1e-4 and answers == "equal")


@pytest.mark.parametrize("kind", ["gemma3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in IMAGE_MODELS[1:])])
def test_the_text_model_of_a_model_for_images_is_measured(kind):
    found = compare(small_image_model(kind))
    assert found.exact
    assert rows()[f"{kind}, whole"][0] == found.path


def test_most_architectures_that_can_be_built_are_exact():
    listed, built, exact, packed, plain = map(
        int, re.search(r"Of (\d+) .*?, (\d+) could.* (\d+) of .*?: (\d+) on .*\n(\d+) on", text()).groups()
    )
    exact_rows = [row for kind, row in rows().items() if "whole" not in kind and max(map(float, row[3:6])) < 1e-4]
    if f"transformers {transformers.__version__} " in text():  # others know of more architectures, or of fewer
        assert listed == len(architectures())
    assert len(exact_rows) == exact == packed + plain
    assert exact >= 60
    assert exact >= 0.9 * built
    assert packed >= 40
