"""The report: it escapes what it shows, its numbers are those of the tables, and its links lead to the run's files."""

import base64
import io
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from itertools import product
from urllib.parse import unquote

import numpy as np
import polars as pl
import pytest
import vl_convert
from markupsafe import Markup
from PIL import Image

from anchorscope.draw.registry import FIGURE_KINDS, kinds_drawn
from anchorscope.draw.style import MARKERS, PALETTE, read_style
from anchorscope.draw.titles import FEW
from anchorscope.draw.view import View
from anchorscope.report.chart import SHAPES, chart_section, family_chart, javascript, records
from anchorscope.report.claims import claims_section
from anchorscope.report.examples import JUDGED
from anchorscope.report.figures import figures_section, files_section, make_pictures, png_uri
from anchorscope.report.job import with_titles
from anchorscope.report.opening import MOST_MODELS, opening_section, outcome_sentence
from anchorscope.report.page import ENVIRONMENT, Section, page
from anchorscope.report.survives import label_errors_sentence, survives_section
from anchorscope.report.tables import (
    accuracy,
    deepest_layers,
    distance_table,
    form_table,
    kept_questions,
    named,
    reference_auc,
)
from anchorscope.summarise.claims import NOT_APPLICABLE, VERDICTS
from anchorscope.summarise.verdict_on_kinds import COMPARED
from read_figures import write_figure
from synthetic_run import (
    HEADLINE,
    make_accounts,
    make_deepest,
    make_forms,
    make_label_errors,
    make_layers,
    make_series,
    make_strata,
    make_summary,
    make_text,
    sections,
)

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> & \"quotes\" 'too'"
FOUR = {"popqa": "PopQA", "triviaqa": "TriviaQA", "hotpotqa": "HotpotQA", "nq": "NQ"}
MACROS = ENVIRONMENT.get_template("macros.html").module
TWELVE_MEGABYTES = 12 * 10**6


class Read(HTMLParser):
    """Collects tags, links, the text of cells and marks, scripts, and all text that a reader sees."""

    def __init__(self, html: str):
        super().__init__()
        self.tags, self.links, self.cells, self.marks, self.scripts, self.seen = [], [], [], [], [], ""
        self.feed(str(html))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "a":
            self.links.append(dict(attrs)["href"])
        for kind, texts in (("td", self.cells), ("mark", self.marks), ("script", self.scripts)):
            if tag == kind:
                texts.append("")

    def handle_data(self, data):
        for kind, texts in (("td", self.cells), ("mark", self.marks), ("script", self.scripts)):
            if self.tags and self.tags[-1] == kind and texts:
                texts[-1] += data
        if not self.tags or self.tags[-1] not in ("script", "style"):
            self.seen += data

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")


def outcome(**changed: object) -> dict:
    """A model's numbers as claims.json has them."""
    found = {"published": -20.54, "honest": [-4.9, -6.6, -3.3], "recentred": [-2.0, -2.8, -1.3], "examples": 1938}
    return found | {"kinds": {"two kinds": ["d"], "undecided": ["a", "b", "c"]}, "warnings": []} | changed


SETS = {name: name.upper() for name in "abcd"}


def test_sentences_of_claims_have_titles_where_names_of_datasets_stood():
    warned = outcome(warnings=["Little can be said on `a` and `z`.", "a `b`"])
    found = with_titles({"numbers": {"m": warned}, "bottom_line": {"m": "On `c` a gap."}, "claims": []}, SETS)
    assert found["numbers"]["m"] == warned | {"warnings": ["Little can be said on A and z.", "a B"]}
    assert (found["bottom_line"], found["claims"]) == ({"m": "On C a gap."}, [])


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Read:
    """A page on which every name, question and answer tries to be markup."""
    folder = tmp_path_factory.mktemp("hostile")
    titles = {"one": HOSTILE, "two": "TriviaQA"}
    parts = sections(folder, {"small": 4, "random": 6}, titles, HOSTILE)
    opening = opening_section({"m": outcome()}, {"m": HOSTILE}, {"m": HOSTILE}, SETS, pictures=[], notes=[HOSTILE])
    return Read(page(opening, parts))


def test_markup_in_names_questions_and_answers_shows_as_text(hostile):
    assert "img" not in hostile.tags
    assert hostile.tags.count("script") == 6  # data and what draws them, of chart and examples; Vega; the page's own
    assert HOSTILE in hostile.cells
    for before in ("northern islands", r"It was written by author \w+"):
        assert re.search(f"{before} {re.escape(HOSTILE)}", hostile.seen)


def test_the_page_begins_with_four_numbers_of_each_model_and_a_table_where_there_are_many():
    one = opening_section(
        {"m": outcome()}, {"m": "in full."}, {"m": "Model"}, SETS, pictures=[], notes=["Few: see `dtype`."]
    )
    assert re.findall(r'<span class="large">(.*?)</span>', one) == ["−20.5", "−4.9", "−2.0", "undecided"]
    assert "on A, B, C; two kinds on D" in one
    assert "−6.6 … −3.3" in one
    assert '<p class="note">Few: see <code>dtype</code>.</p>' in one
    titles = {str(number): f"Model {number}" for number in range(MOST_MODELS + 1)}
    outcomes = dict.fromkeys(titles, outcome())
    many = opening_section(outcomes, dict.fromkeys(titles, ""), titles, SETS, pictures=[], notes=[])
    assert re.findall(r'<td class="number">([^<]*?) ?<', many)[:5] == ["1,938", "−20.5", "−4.9", "−2.0", "undecided"]
    assert many.count("<tr>") == 1 + len(titles)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "is −4.9 when another prompt measures it, and −2.0 without the push"),
        ({"recentred": [-0.5, -1.2, 0.1]}, "is −4.9 when another prompt measures it, and cannot be told from zero"),
        ({"honest": [-0.5, -1.2, 0.1]}, "−20.5 points by the published rule cannot be told from zero when"),
    ],
)
def test_one_sentence_says_what_is_left_of_the_published_gap(changed, said):
    assert said in outcome_sentence(outcome(**changed))
    assert outcome_sentence(outcome(**changed) | {"published": None}) is None


def test_no_text_can_end_the_charts_data_and_it_arrives_as_it_was(hostile):
    text = hostile.scripts[0]
    assert "<" not in text
    spec = json.loads(text)
    assert HOSTILE in {record["dataset"] for record in spec["data"]["values"]}
    odd = {"<!--": "</script>", "'": "&amp;"}
    assert json.loads(Read(chart_section(odd, read_style())).scripts[0]) == odd


def test_the_page_allows_nothing_to_be_loaded(hostile):
    assert "</script" not in javascript()
    html = page(Markup("One"), [Section("Two", Markup("three"))])
    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)=\"(?!data:|#)", html)


def test_a_table_has_a_row_for_each_row_and_a_dash_for_nothing():
    html = MACROS.table(pl.DataFrame({"a_b": [1.25, None, -3.0], "<b>": ["x", "&", None]}), "Some & others")
    assert html.count("<tr>") == 4
    assert '<th scope="col" class="number">a b</th>' in html
    assert Read(html).cells == ["1.2", "x", "–", "&", "−3.0", "–"]
    assert "b" not in Read(html).tags
    assert 'tabindex="0" role="region" aria-label="Some &amp; others"' in html


@pytest.mark.parametrize("verdict", [*VERDICTS, NOT_APPLICABLE, *JUDGED.values()])
def test_every_verdict_has_a_sign_that_is_not_read_out(verdict):
    badge = MACROS.badge(verdict)
    assert re.search(r'<span aria-hidden="true">[✓✗?–]</span> ' + verdict, badge)


def test_the_deepest_layer_is_where_question_anchored_is_lowest():
    summary = make_summary({"m": 6}, ["d"])
    found = deepest_layers(summary, HEADLINE).to_dicts()
    assert [row["rule"] for row in found] == ["flip", "honest"]
    for row in found:
        wanted = {**asdict(HEADLINE), "intervention": "exact_question", "rule": row["rule"], "logits": "measured"}
        curves = summary.filter(**wanted)
        question = curves.filter(anchor="question").sort("layer")["delta_p"].to_list()
        gap = curves.filter(anchor="gap", layer=row["layer"]).row(0, named=True)
        assert row["layer"] == int(np.argmin(question))
        assert (row["ΔP_Q"], row["gap"]) == (min(question), gap["delta_p"])
        assert row["95 % interval"] == f"{gap['low']:.1f} … {gap['high']:.1f}".replace("-", "−")
        assert (row["AUC_clean"], row["AUC_cut"]) == ("0.80", "0.60")


def test_tables_count_questions_and_answers():
    verdicts = {"kept": 90, "duplicate question": 7, "no gold answer": 3}
    rows = [{"dataset": "one", "verdict": name, "rows": count} for name, count in verdicts.items()]
    found = kept_questions(pl.DataFrame([*rows, {"dataset": "two", "verdict": "kept", "rows": 5}]))
    assert found.rows() == [("one", 90, 10, "7 duplicate question, 3 no gold answer"), ("two", 5, 0, None)]
    counts = {"asked": 80, "right": 20, "wrong": 58, "refused": 2, "left_out_by_balance": 38, "analysed": 40}
    answers = accuracy(
        pl.DataFrame([{"model": "m", "dataset": "two", **counts}, {"model": "m", "dataset": "one", **counts}])
    )
    assert answers["right, % of asked"].to_list() == [25.0, 25.0]
    datasets = {"one": "One", "two": "Two"}
    shown = named(answers, {"m": "Model", "n": "Other"}, datasets)
    assert shown.select("model", "dataset").rows() == [("Model", "One"), ("Model", "Two")]
    assert named(answers, {"m": "Model"}, datasets).columns == shown.columns[1:], "one model alone needs no column"


def rows_of(html: str) -> list[tuple[str, list[str]]]:
    """The first cell of each row, and the others."""
    rows = re.findall(r"<tr><td>(.*?)</td>(.*?)</tr>", html)
    return [(what, re.findall(r"<td[^>]*>(.*?)</td>", cells)) for what, cells in rows]


def test_what_survives_stands_side_by_side_and_has_a_dash_where_nothing_was_measured():
    """One dataset has a salmon and another choice of words, the other has neither."""
    whole, some = ["m"], ["one", "two"]
    series = make_series(whole, some)
    twin = make_series(["m+salmon"], ["one"])
    subject = series.filter(dataset="one", intervention="exact_question").with_columns(intervention=pl.lit("subject"))
    tables = {
        "text": make_text({"m": 4}, some),
        "layers": pl.concat([make_layers({"m": 4}, some), make_layers({"m+salmon": 4}, ["one"])]),
        "series": pl.concat([series, twin, subject.with_columns(area=pl.lit(-7.0))]),
        "strata": make_strata({"m": 4}, some),
        "forms": make_forms(whole, ["one"]),
        "label_errors": make_label_errors({"m+salmon": 4}, ["one"]),
    }
    html = str(survives_section(tables, HEADLINE, {"m": "Model"}, {"two": "Two", "one": "One"}))
    assert re.findall(r"<h3>(.*?)</h3>", html) == ["Model"]
    assert re.search("Two</th>.*One</th>", html)
    shown = rows_of(html)
    control = "control: as many other words cut"
    assert [cells for what, cells in shown if what == control] == [["−1.0 (−3.0 … 1.0)"] * 2, ["1.10"] * 2]
    rows = dict(shown)
    assert rows["best layer"] == ["0.85", "0.85"]
    assert rows["words of both"] == ["0.62", "0.62"]
    assert rows["shuffled labels"] == ["0.50", "0.50"]
    assert rows["random weights, best layer"] == ["–", "0.85"]
    honest = [
        series.filter(dataset=name, intervention="exact_question", rule="honest", logits="measured")["area"][0]
        for name in ("two", "one")
    ]
    points, logits = (
        [f"{area / by:.{digits}f} ({(area - 2) / by:.{digits}f} … {(area + 2) / by:.{digits}f})" for area in honest]
        for by, digits in ((1, 1), (25, 2))
    )
    assert rows["honest, ΔP"] == [text.replace("-", "−") for text in points]
    assert rows["honest, Δlogit"] == [text.replace("-", "−") for text in logits]
    assert rows["subject cut"][0] == "–"
    assert rows["subject cut"][1].startswith("−7.0 (")
    assert rows["random weights, honest, ΔP"][0] == "–"
    assert rows["at equal form of the question"] == ["–", "−2.0 (−3.0 … −1.0)"]
    assert rows["without answers that stand in the question, recentred"] == ["–", "−1.5 (−2.5 … −0.5)"]
    assert rows["honest gap in ΔP, near third"] == ["−7.0", "−7.0"]  # layers 1 to 3 of 4
    assert "labels were wrong" not in html  # only those of the salmon were measured


def test_one_sentence_says_how_far_wrong_labels_would_move_a_model():
    """From the lowest to the highest move on any dataset, and a dash where there is no gap."""
    rows = make_label_errors({"m": 4}, ["one", "two", "three"])
    no_gap = pl.when(pl.col("errors") != "right_called_hallucinated").then("gap_move").alias("gap_move")
    assert label_errors_sentence(rows.with_columns(no_gap)) == (
        "If 2 % of the labels were wrong, at random, the AUC of the best layer and the honest gap would move by "
        "−0.014 … −0.010 and −1.0 … +1.0 points. If all of these were right answers called hallucinated, they would "
        "move by −0.024 … −0.020 and – points; if all were hallucinated answers called right, by −0.034 … −0.030 and "
        "−3.0 … +3.0 points. Each is the range over datasets and 3 draws of the wrong labels."
    )


def test_forms_show_how_much_of_each_group_they_are_and_small_ones_are_left_out():
    found = form_table(make_forms(["m"], ["d"]), HEADLINE)
    shares = ("of all, %", "of Q, %", "of A, %", "that are Q, %")
    assert found.columns == [
        "model",
        "dataset",
        "grouping",
        "form",
        "n",
        *shares,
        "gap",
        "95 % interval",
        "recentred_gap",
    ]
    assert found.rows()[1:4] == [
        ("m", "d", "question form", "choice", 60, 60, 80, 12, 60, -4.0, "−5.0 … −3.0", -2.0),
        ("m", "d", "question form", "yes no", 40, 40, 80, 12, 60, None, "–", None),
        ("m", "d", "question form", "at equal form", 60, 60, 80, 12, 60, -2.0, "−3.0 … −1.0", -1.0),
    ]
    assert found["form"].to_list()[4:] == ["the same, whatever their form", "no"]


def test_distances_are_in_those_of_clean_states_and_gaps_leave_out_layers_without_an_interval():
    found = distance_table(make_layers({"m": 4}, ["d"]), make_strata({"m": 4}, ["d"]), HEADLINE)
    assert found.rows() == [
        ("m", "d", "exact question words cut", "1.25", "1.25", -7.0, -12.0, -17.0),
        ("m", "d", "control: as many other words cut", "1.10", "1.10", -7.0, -12.0, -17.0),
    ]


def test_the_probes_are_those_of_the_reference_layer():
    found = reference_auc(make_layers({"m": 5}, ["d"]), HEADLINE).row(0)
    assert found == ("m", "d", 2, "0.85 (0.80 … 0.90)", "0.60 (0.55 … 0.65)", "0.84 (0.79 … 0.89)", "0.04")


def test_claims_show_their_verdict_in_words_and_fold_single_datasets_away():
    row = {
        "claim": 1,
        "model": "m",
        "logits": "recentred",
        "verdict": "supported",
        "effect": -6.84,
        "low": -7.8,
        "high": -5.7,
        "because": None,
        "in_logits": {"verdict": "supported"},
    }
    nothing = {"effect": None, "low": None, "high": None, "because": "a group has no examples"}
    rows = [
        {**row, "dataset": None},
        {**row, "dataset": "one", "verdict": "contradicted", "in_logits": {"verdict": "undecided"}},
        {**row, "claim": 4, "model": "m against n", "dataset": None, "verdict": "undecided", **nothing},
    ]
    beside = {
        "model": "m",
        "dataset": "one",
        "logits": "residual",
        "area": -6.8,
        "area_low": -7.8,
        "area_high": -5.7,
        "beyond": False,
    }
    beside |= {"area_null": -6.0, "area_null_low": -7.0, "area_null_high": -5.0}
    ends = (("", 0.0), ("_low", -0.125), ("_high", 0.125))
    gains = {f"{name}{end}": -0.25 + shift for name, (end, shift) in product(COMPARED, ends)}
    kinds = {"model": "m", "dataset": "one", "n": 812, **gains, "verdict": "two kinds", "could_see_share": 0.081}
    kinds["within"] = [{"among": "question_form who", "n": 120, "verdict": "undecided", "could_see_share": None}]
    kinds["told_apart"] = [
        {"quality": "answer_in_question", "value": "yes", "n": 40, "share_lost": 0.604, "auc": None}
        | {"share_lost_low": 0.5, "share_lost_high": 0.7},
        {"quality": "popularity", "value": None, "n": 800, "share_lost": None}
        | {"auc": 0.654, "auc_low": 0.6, "auc_high": 0.7},
    ]
    landmark = {"model": "m", "landmark": "at the end", "published_low": -45, "published_high": -30, "layers": "14–15"}
    landmark |= {"measured_low": -31.25, "measured_high": -20.0, "agrees": True}
    claims = {
        "statements": {"1": "it lies below", "4": "it goes deeper"},
        "claims": rows,
        "one_mechanism": [beside],
        "kinds": [kinds, {**kinds, "dataset": "two", "verdict": "by degrees", "within": [], "told_apart": []}],
        "landmarks": [landmark],
    }
    html = claims_section(claims, {"m": "Model", "n": "Other"}, {"one": "One", "two": "Two"})
    whole, folded, *rest = html.split("<details>")
    rest = "".join(rest)
    assert '<span aria-hidden="true">✓</span> supported' in whole
    assert "1. Question-Anchored lies below Answer-Anchored" in whole
    assert '−6.8 <span class="soft">(−7.8 … −5.7)</span>' in whole
    assert "in logits" not in whole.split("4. ")[0]
    assert '<span aria-hidden="true">✗</span> contradicted' in folded
    assert "in logits undecided" in folded
    # The interval is drawn on a line whose middle is zero: its lower end is farthest, and so at 50 - 48.
    ends = [round(50 - 48 * end / 7.8, 1) for end in (7.8, 6.84, 5.7)]
    assert f'x1="{ends[0]}" x2="{ends[2]}" y1="6"' in whole
    assert f'cx="{ends[1]}"' in whole
    assert re.findall(r"<td>(.*?)</td>", whole)[:1] == ["recentred"]
    assert "against Other" in whole
    assert "a group has no examples" in whole
    assert re.findall(r'<td class="number">(.*?)</td>', whole + folded) == ["1624", "–", "812"], "two datasets of 812"
    assert "<code>recentred</code>" in rest
    cells = Read(rest).cells
    assert cells[:8] == ["Model", "One", "residual", "−6.8", "−7.8 … −5.7", "−6.0", "−7.0 … −5.0", "no"]
    gains = ["−0.250 (−0.375 … −0.125)"] * 2
    assert cells[8:15] == ["Model", "One", "812", "two kinds", *gains, "8 %"]
    within = "undecided, within question form who"
    assert cells[15:22] == ["Model", "One", "120", within, "–", "–", "more than a half"]
    assert cells[22:29] == ["Model", "Two", "812", "by degrees", *gains, "8 %"]
    stands = "whether the answer stands in the question"
    assert cells[29:35] == ["Model", "One", stands, "yes", "40", "60 % lost (50 … 70)"]
    assert cells[35:41] == ["Model", "One", "popularity", "–", "800", "AUC 0.65 (0.60 … 0.70)"]
    assert cells[41:] == ["Model", "at the end", "−45 … −30", "−31.2 … −20.0", "14–15", "yes"]


def test_the_chart_has_the_series_of_the_figure_in_its_order_and_colours():
    summary = make_summary({"small": 5, "random": 7}, list(FOUR))
    spec = family_chart(summary, View({"small": "Small", "random": "Random"}, FOUR))
    lists = {param["name"]: param.get("value") for param in spec["params"]}
    assert lists["all_label"] == [f"{letter} {title}" for title in FOUR.values() for letter in "QA"]
    assert lists["all_colour"] == [colour for colour in PALETTE[:4] for _ in "QA"]
    assert lists["all_marker"] == [name for name in ("circle", "square", "triangle-up", "diamond") for _ in "QA"]
    menus = {param["name"]: param["bind"]["options"] for param in spec["params"] if "options" in param.get("bind", "")}
    assert menus["chosen_model"] == [None, "Small", "Random (random weights)"]
    at_reference = [f"{rule} at reference layers" for rule in ("crossfit", "honest")]
    assert menus["chosen_rule"] == ["flip", "fixed", "crossfit", "honest", *at_reference]
    assert menus["chosen_logits"] == ["measured", "recentred", "residual"]
    assert menus["chosen_quantity"] == ["delta_p", "delta_logit"]
    assert lists["chosen_rule"] == "honest", "it opens on the honest grouping"
    assert menus["chosen_component"] == ["resid", "attn", "mlp"]
    assert menus["chosen_position"] == ["before_answer", "answer_last", "final"]
    part = summary.filter(pl.col("component").is_in(["resid", "mlp"]), position="answer_last")
    params = family_chart(part, View({"small": "Small"}, FOUR))["params"]
    offered = {param["name"]: param["bind"]["options"] for param in params if "options" in param.get("bind", "")}
    assert offered["chosen_component"] == ["resid", "mlp"]
    assert "chosen_position" not in offered, "one position is no choice"
    other = summary.with_columns(intervention=pl.lit("own"))
    params = family_chart(pl.concat([summary, other]), View({"small": "Small"}, FOUR))["params"]
    (menu,) = (param["bind"] for param in params if param["name"] == "chosen_intervention")
    assert menu["labels"] == ["exact question words", "control: other words", "own"]
    assert family_chart(summary, View({"small": "Small", "random": "Random"}, FOUR)) == spec


def test_the_charts_data_are_the_summarys_rounded_to_a_tenth():
    summary = make_summary({"m": 6}, ["d"])
    data = records(summary, {"m": "Model"}, {"d": "Data"})
    assert len(data) == 9 * 2 * 4 * 2 + 2 * 2 * 3 * 2, "and two more kinds of logits at the headline"
    where = {
        **asdict(HEADLINE),
        "rule": "flip",
        "logits": "measured",
        "intervention": "exact_question",
        "anchor": "question",
    }
    series, rows = data.filter(**where).row(0, named=True), summary.filter(**where).sort("layer")
    assert (series["model"], series["dataset"]) == ("Model", "Data")
    for name in ("delta_p", "low", "high", "null_low", "null_high"):
        assert series[name] == [round(value, 1) for value in rows[name]]
    assert series["n"] == rows["n"].to_list()
    assert series["sure"] == [
        int(n >= FEW and better) for n, better in rows.select("n", "better_than_chance").iter_rows()
    ]
    assert data.filter(**{**where, "rule": "fixed"})["null_low"].to_list() == [[]]


def test_every_marker_of_the_bundled_style_has_a_shape_in_the_chart():
    assert set(MARKERS) == set(SHAPES)


def test_a_picture_is_smaller_than_the_figure_and_keeps_its_colours():
    whole = Image.new("RGB", (2800, 600), "white")
    whole.paste("#1f77b4", (100, 100, 1500, 300))
    file = io.BytesIO()
    whole.save(file, "png")
    uri = png_uri(file.getvalue())
    assert uri.startswith("data:image/webp;base64,")
    with Image.open(io.BytesIO(base64.b64decode(uri.split(",", 1)[1]))) as small:
        assert small.size == (1400, 300)
        assert np.abs(np.array(small.convert("RGB").getpixel((300, 100))) - [0x1F, 0x77, 0xB4]).max() <= 8


def test_links_are_relative_to_the_page_and_survive_odd_names():
    html = files_section(["results/odd name?/<x>.csv", "results/report.html"], "results/report.html")
    assert Read(html).links == ["report.html", "odd%20name%3F/%3Cx%3E.csv"]


def test_the_page_of_a_finished_run_links_to_every_file_of_it(finished):
    html = (finished / "results/report.html").read_text()
    read = Read(html)
    links = {unquote(link) for link in read.links if not link.startswith("#")}
    for link in links:
        assert (finished / "results" / link).is_file(), link
    named_files = {"summary.parquet", "delta/tiny/one.parquet", "figures/main/grid_column.pdf", "provenance.json"}
    assert named_files <= links
    for section in (link[1:] for link in read.links if link.startswith("#")):
        assert f'id="{section}"' in html
    assert html.count("<picture>") == len(kinds_drawn(9, words=1, windows=1))


def test_the_page_of_a_finished_run_says_what_its_tables_say(finished):
    results = finished / "results"
    read = Read((results / "report.html").read_text())
    counts = pl.read_csv(results / "examples.csv").row(0, named=True)
    share = f"{100 * counts['right'] / counts['asked']:.1f}"
    row = ["ONE", *(str(counts[name]) for name in ("asked", "right", "wrong", "refused")), share]
    start = next(index for index in range(len(read.cells)) if read.cells[index : index + len(row)] == row)
    assert read.cells[start + len(row) + 1] == str(counts["analysed"])
    deepest = pl.read_parquet(results / "deepest.parquet").filter(dataset="one", intervention="exact_question")
    for anchored in (True, False):
        first = deepest.filter(question_anchored=anchored).sort("id").row(0, named=True)
        assert f"P(hallucinated) {first['p_clean']:.2f} → {first['p_ko']:.2f}" in read.seen
    verdicts = json.loads((results / "claims.json").read_text())["claims"]
    for verdict in {claim["verdict"] for claim in verdicts}:
        assert verdict in read.seen


@pytest.mark.slow
def test_four_models_of_the_published_depths_on_four_datasets_take_less_than_twelve_megabytes(tmp_path):
    layers = {"small": 16, "middle": 28, "large": 36, "largest": 64}
    tables = {
        "summary": make_summary(layers, list(FOUR)),
        "layers": make_layers(layers, list(FOUR)),
        "deepest": make_deepest(layers, list(FOUR)),
        "accounts": make_accounts(layers, list(FOUR)),
    }
    models = {"large": "Large", "largest": "Largest"}
    kinds = [kind.name for kind in FIGURE_KINDS if not kind.experiment]
    figures = [write_figure(tmp_path / kind, tables, models, FOUR) for kind in kinds]
    families = {"one": figures, "other": figures}  # the smaller models' figures are no larger
    pictures = make_pictures(families, {name: name for name in families}, tmp_path / "report.html")
    parts = [*sections(tmp_path, layers, FOUR), Section("Figures", figures_section(pictures))]
    drawn = [picture for of_set in pictures.values() for picture in of_set]
    opening = opening_section({}, {}, {}, {}, pictures=drawn, notes=[])
    assert len(page(opening, parts).encode()) < TWELVE_MEGABYTES


def test_a_model_of_two_layers_has_no_layer_twice_on_its_axis():
    summary = make_summary({"tiny": 2}, ["popqa"])
    svg = vl_convert.vegalite_to_svg(family_chart(summary, View({"tiny": "Tiny"}, {"popqa": "PopQA"})))
    axis = svg[svg.index("X-axis titled 'Layer'") :]
    labels = re.findall(r"<text[^>]*>(\d+)</text>", axis[: axis.index(">Layer<")])
    assert labels == ["0", "1"]
