"""The explorer of examples: its curves are those of the delta table, and it is small, fair and escapes its texts."""

import base64
import json
import re
import shlex
import subprocess
import sys
from html import unescape
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from anchorscope.files.frames import read_frame, write_frame
from anchorscope.report.examples import (
    LONGEST_TEXT,
    MOST_EMBEDDED,
    P_STEPS,
    WITHOUT_SCRIPT,
    PairExamples,
    coded,
    example_rows,
    examples_section,
    fair_shares,
    gold_text,
    pair_examples,
    stretches,
)
from anchorscope.report.page import ENVIRONMENT
from synthetic_run import examples_of_run, write_answers

MACROS = ENVIRONMENT.get_template("macros.html").module
DATASETS = {"one": "One", "two": "Two"}


def embedded_data(html: str) -> dict:
    """What the page carries for its script."""
    return json.loads(re.search(r'id="examples-data">(.*?)</script>', html, re.S)[1])


def decoded(curve: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of all layers, clean and cut."""
    clean, cut = np.frombuffer(base64.b64decode(curve), np.uint8).reshape(2, -1) / 255
    return clean, cut


def plain_curve(delta: pl.DataFrame, one: str) -> tuple[list[float], list[float]]:
    """The slow way: mean logits over repeats, layer by layer, of one example of a delta table."""
    curves: tuple[list[float], list[float]] = ([], [])
    for layer in sorted(set(delta["layer"])):
        rows = delta.filter(id=one, layer=layer, intervention="exact_question").to_dicts()
        for curve, name in zip(curves, ("logit_clean_full", "logit_ko_full"), strict=True):
            mean = sum(row[name] for row in rows) / len(rows)
            curve.append(1 / (1 + np.exp(-mean)))
    return curves


def check_curves(html: str, delta: pl.DataFrame, anchored: dict[str, bool], questions: dict[str, str], pair: int):
    """Every example's curve and every group's mean on the page are those of the delta table, to half a step."""
    data = embedded_data(html)
    curves = {one: plain_curve(delta, one) for one in anchored}
    ids = {question: one for one, question in questions.items()}
    shown = [example for example in data["examples"] if example["pair"] == pair]
    assert shown
    for example in shown:
        one = ids["".join(example["question"])]
        assert example["anchor"] == ("question" if anchored[one] else "answer")
        np.testing.assert_allclose(decoded(example["curve"]), curves[one], atol=1 / (2 * P_STEPS) + 1e-6)
    for anchor, mean in data["pairs"][pair]["means"].items():
        members = [curves[one] for one, flips in anchored.items() if flips == (anchor == "question")]
        assert mean["n"] == len(members)
        np.testing.assert_allclose(decoded(mean["curve"]), np.mean(members, axis=0), atol=1 / (2 * P_STEPS) + 1e-6)


def test_curves_and_group_means_are_those_of_the_delta_table(tmp_path):
    html = examples_section(examples_of_run(tmp_path, {"m": 3}, DATASETS))
    questions = dict(read_frame(tmp_path / "answers.parquet", ["id", "question"]).rows())
    deepest = read_frame(tmp_path / "deepest.parquet").filter(intervention="exact_question")
    for pair, dataset in enumerate(DATASETS):
        anchored = dict(deepest.filter(dataset=dataset).select("id", "question_anchored").rows())
        check_curves(html, read_frame(tmp_path / f"delta.m.{dataset}.parquet"), anchored, questions, pair)


def test_a_finished_runs_page_has_the_curve_of_every_analysed_example(finished):
    results = finished / "results"
    html = (results / "report.html").read_text()
    deepest = pl.read_parquet(results / "deepest.parquet").filter(intervention="exact_question")
    assert f"All {len(deepest)} examples of the run." in html
    for pair, dataset in enumerate(("one", "two")):
        answers = pl.read_parquet(results / f"answers/tiny/{dataset}/*.parquet").select("id", "question")
        anchored = dict(deepest.filter(dataset=dataset).select("id", "question_anchored").rows())
        delta = pl.read_parquet(results / f"delta/tiny/{dataset}.parquet")
        delta = delta.filter(component="resid", position="answer_last")
        check_curves(html, delta, anchored, dict(answers.rows()), pair)


@pytest.mark.parametrize("p", [0.0, 0.2, np.nextafter(0.5, 0), 0.5, 0.501, 1.0])
def test_a_byte_is_on_its_probabilitys_side_of_one_half(p):
    clean, cut = decoded(coded(np.array([p]), np.array([1 - p])))
    assert abs(clean[0] - p) <= 1 / (2 * P_STEPS)
    assert (clean[0] >= 128 / 255) == (p >= 0.5)
    assert len(clean) == len(cut) == 1


def test_a_page_is_shared_fairly_and_small_datasets_are_shown_whole():
    sizes = {("m", "small"): 30, ("m", "large"): 5000, ("n", "small"): 40, ("n", "large"): 3000}
    assert fair_shares(sizes, 100) == dict.fromkeys(sizes, 25)
    shares = fair_shares(sizes, 2000)
    assert list(map(shares.get, sizes)) == [30, 965, 40, 965]
    assert fair_shares(sizes, 100_000) == sizes


def test_a_large_run_shows_the_first_of_each_pair_by_id_and_says_how_many(tmp_path):
    pairs = examples_of_run(tmp_path, dict.fromkeys("mno", 2), DATASETS)
    assert {len(pair.rows) for pair in pairs} == {MOST_EMBEDDED // 6, MOST_EMBEDDED // 6 + 1}
    ids = sorted(read_frame(tmp_path / "answers.parquet", ["id"])["id"])
    assert all(pair.rows["id"].to_list() == ids[: len(pair.rows)] for pair in pairs)
    assert "2,000 of the run's\n2,400 examples" in examples_section(pairs)


def test_without_a_script_the_first_few_of_each_group_are_shown(tmp_path):
    (pair,) = examples_of_run(tmp_path, {"m": 4}, {"one": "One"})
    html = re.search("<noscript>(.*)</noscript>", examples_section([pair]), re.S)[1]
    assert html.count("<li>") == 2 * WITHOUT_SCRIPT
    assert re.findall("<h3>(.*?)</h3>", html) == ["Question-Anchored, layer 2", "Answer-Anchored, layer 2"]
    first = pair.rows.filter(anchor="question").row(0, named=True)
    item = html[html.index("<li>") : html.index("</li>")]
    assert re.findall("<mark>(.*?)</mark>", item) == ["wrote", first["id"], f"author {first['id']}"]
    assert f"P(hallucinated) {first['p_clean']:.2f} → {first['p_ko']:.2f}" in item
    assert f'badge {"right" if first["right"] else "hallucinated"}"' in item
    assert "somebody; nobody and 2 more" in item


def test_answers_that_were_not_probed_have_no_curve_and_say_so(tmp_path):
    ids = [f"{number:02d}" for number in range(40)]
    answers = read_frame(write_answers(tmp_path / "plain.parquet", ids))
    right = pl.Series("right", [None, *[False] * 35, *[True] * 4])
    write_frame(tmp_path / "judged.parquet", answers.with_columns(right), {})
    rows = example_rows(pl.DataFrame(), [tmp_path / "judged.parquet"])
    html = examples_section([pair_examples("Model", "One", rows, None, share=40)])
    assert "Model, One (not probed)" in html
    assert re.findall(r"<h3>(\w+)</h3>", html) == ["Right", "Hallucinated", "Refused"]
    counted = [html.count(f'class="badge {name}"') for name in ("right", "hallucinated", "refused")]
    assert counted == [WITHOUT_SCRIPT, WITHOUT_SCRIPT, 1]
    assert "P(hallucinated)" not in html[: html.index("</noscript>")]
    data = embedded_data(html)
    assert len(data["examples"]) == 40
    assert not any("curve" in example for example in data["examples"])
    assert 'name="anchor"' not in html


def test_marks_stand_around_their_characters_and_the_rest_is_escaped():
    found = stretches("a <b> é", [(6, 7), (2, 5)])
    assert found == ["a ", "<b>", " ", "é", ""]
    assert stretches("none", []) == ["none"]
    assert stretches("abcdef", [(0, 4), (2, 6)]) == ["", "abcd", "", "ef", ""]
    assert MACROS.marked(found) == "a <mark>&lt;b&gt;</mark> <mark>é</mark>"


def test_long_texts_are_shortened():
    assert "".join(stretches("x" * 5000, [(10, 20), (900, 910)])) == "x" * LONGEST_TEXT + "…"
    assert gold_text(["y" * 5000, "z"]) == "y" * LONGEST_TEXT + "…; z"


def of_usual_length(folder: Path, count: int, layers: int) -> PairExamples:
    """Examples with noise for curves, which compress in no way."""
    ids = [f"{number:012x}" for number in range(count)]
    texts = read_frame(write_answers(folder / "answers.parquet", ids))
    told = {"layer": 12, "p_clean": 0.4, "p_ko": 0.6, "anchor": "question"}
    rows = texts.with_columns(pl.lit(value).alias(name) for name, value in told.items())
    clean, cut = np.random.default_rng(0).random((2, count, layers))
    curves = pl.DataFrame({"id": ids, "clean": clean, "cut": cut})
    return pair_examples("Model", "Data", rows, curves, share=count)


def test_two_thousand_examples_of_a_deep_model_take_little_more_than_a_megabyte(tmp_path):
    section = examples_section([of_usual_length(tmp_path, MOST_EMBEDDED, layers=32)])
    assert len(embedded_data(section)["examples"]) == 2000
    assert len(section.encode()) < 1_200_000


def test_the_command_that_the_page_names_writes_every_analysed_example(tmp_path):
    """As the run has them: one folder per model and dataset, and a table of all."""
    examples_of_run(tmp_path, {"m": 2, "n": 2}, DATASETS)
    for model, dataset in product("mn", DATASETS):
        folder = tmp_path / "results/answers" / model / dataset
        folder.mkdir(parents=True)
        (folder / "0000.parquet").write_bytes((tmp_path / "answers.parquet").read_bytes())
    (tmp_path / "results/deepest.parquet").write_bytes((tmp_path / "deepest.parquet").read_bytes())
    command = unescape(re.search("<pre[^>]*>(python .*?)</pre>", examples_section([]), re.S)[1])
    subprocess.run([sys.executable, *shlex.split(command)[1:]], cwd=tmp_path, check=True)
    written = pl.read_csv(tmp_path / "every_example.csv")
    assert written.height == 4 * 400
    assert {"model", "dataset", "id", "question", "answer", "p_clean", "p_ko", "question_anchored"} <= set(
        written.columns
    )
