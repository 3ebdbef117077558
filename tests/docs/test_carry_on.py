"""The additions that docs/carry_on.md works through, made to a copy of the project and run."""

import ast
import json
import re
import shutil
import textwrap
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml

from pages import blocks
from small_run import base_config, copy_project, rewind, snakemake, write_config
from small_things import ROOT

PAGE = ROOT / "docs/carry_on.md"
SECTIONS = dict(re.findall(r"^## Add (.*?)\n(.*?)(?=^## )", PAGE.read_text(), re.M | re.S))
# The page's own sentences say where a piece belongs, so that its readers and this test go by the same words.
CODE = r":\n\n```(?:py|rst)\n(.*?)^```$"
NEW = re.compile(rf"^New file `([^`]+)`{CODE}", re.M | re.S)
INSERT = re.compile(rf"^In `([^`]+)`, add (before|to) `([^`]+)`(?:{CODE}|\sthe line\s`([^`]+)`)", re.M | re.S)
REPLACE = re.compile(r"^In `([^`]+)`, replace\s`([^`]+)`\swith\s`([^`]+)`", re.M)


def carry_on(section: str, folder: Path) -> list[Path]:
    """Make the additions of a section to the project in `folder`; the files that are new or changed."""
    changed = []
    for name, code in NEW.findall(section):
        (folder / name).write_text(code)
        changed.append(folder / name)
    for name, how, anchor, code, line in INSERT.findall(section):
        path = folder / name
        path.write_text(inserted(path.read_text(), how, anchor, code or f"{line}\n"))
        changed.append(path)
    for name, old, new in REPLACE.findall(section):
        path = folder / name
        text = path.read_text()
        assert old in text, f"{name} has no {old}"
        path.write_text(text.replace(old, new))
        changed.append(path)
    return changed


def inserted(text: str, how: str, anchor: str, code: str) -> str:
    """`code` before the one line that begins with `anchor`, or at the end of the list or dict of that name."""
    begins = re.escape(anchor)
    pattern = rf"^(?=( *){begins})" if how == "before" else rf"^{begins}\b.*?\n(?=()[\])}}])"
    places = list(re.finditer(pattern, text, re.M | (0 if how == "before" else re.S)))
    assert len(places) == 1, f"{len(places)} places to add {how} {anchor}"
    (place,) = places
    code = textwrap.indent(code, place[1] if how == "before" else "    ")
    gap = "\n\n" if code.startswith("def ") else ""
    return text[: place.end()] + code + gap + text[place.end() :]


@pytest.fixture(scope="module")
def carried_on(finished, tmp_path_factory):
    """A small run with everything added that the page adds, the new component as its headline."""
    folder = rewind(finished, tmp_path_factory.mktemp("carried") / "on", "models")
    for section in SECTIONS.values():
        carry_on(section, folder)
    rows = [json.loads(line) for line in (folder / "one.jsonl").read_text().splitlines()]
    lines = [json.dumps({"question": row["question"], "solutions": row["answer"], "round": "first"}) for row in rows]
    (folder / "quiz.jsonl").write_text("\n".join(lines))
    (block,) = blocks(PAGE, "yaml")
    config = {**base_config(), **yaml.safe_load(block), "shard_size": 120, "headline": {"component": "mlp_in"}}
    config |= {"components": ["resid", "attn", "mlp", "mlp_in"], "interventions": ["function_words"]}
    write_config(folder, config)
    done = snakemake(folder, "figures")
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_every_piece_of_the_page_belongs_to_an_addition():
    assert list(SECTIONS) == ["an intervention", "a component", "a dataset", "a figure"]
    for beginning, pattern in {"New file `": NEW, ", add ": INSERT, ", replace": REPLACE}.items():
        read = sum(len(pattern.findall(section)) for section in SECTIONS.values())
        assert read == PAGE.read_text().count(beginning) > 0, beginning


@pytest.mark.parametrize("name", SECTIONS)
def test_each_addition_stands_alone(name, tmp_path):
    for path in carry_on(SECTIONS[name], copy_project(tmp_path)):
        if path.suffix == ".py":
            ast.parse(path.read_text())


@pytest.mark.slow
def test_the_new_intervention_is_in_the_summary_and_does_something_else_than_the_exact_words(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet").filter(rule="flip", anchor="all")
    found = summary.filter(intervention="function_words")
    known = summary.filter(intervention="exact_question")
    assert len(found) == len(known) > 0
    assert found["delta_p"].is_finite().all()
    assert (found["delta_p"] != known["delta_p"]).any()


@pytest.mark.slow
def test_the_new_component_is_kept_and_probed(carried_on):
    summary = pl.read_parquet(carried_on / "results/summary.parquet")
    assert set(summary["component"]) == {"resid", "attn", "mlp", "mlp_in"}
    assert set(pl.read_parquet(carried_on / "results/deepest.parquet")["intervention"]) == {
        "exact_question",
        "random_question",
        "function_words",
        "random_function_words",
    }
    folder = carried_on / "results/activations/tiny/quiz/0000"
    read, made = (
        pq.read_table(folder / f"{name}.answer_last.parquet", columns=[f"{name}/answer_last/first/clean/01"])
        for name in ("mlp_in", "mlp")
    )
    assert read.column(0) != made.column(0)


@pytest.mark.slow
def test_the_new_layout_is_read(carried_on):
    questions = pl.read_parquet(carried_on / "results/questions/quiz.parquet")
    raw = [json.loads(line) for line in (carried_on / "quiz.jsonl").read_text().splitlines()]
    expected = {row["question"]: row["solutions"] for row in raw}
    assert dict(questions.select("question", "gold").iter_rows()) == expected
    assert set(questions["property"]) == {"first"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gap", "gap_column"])
def test_the_new_figure_is_drawn(carried_on, name):
    folder = carried_on / "results/figures/main"
    assert "Q − A" in (folder / f"{name}.svg").read_text()
    assert all((folder / f"{name}.{kind}").stat().st_size > 1000 for kind in ("png", "pdf"))
