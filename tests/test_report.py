"""The report escapes what it shows and picks the deepest layer."""

from html.parser import HTMLParser

import polars as pl

from anchorscope.report import deepest_layers, page, table


class Cells(HTMLParser):
    """Collects the text of table cells, and every tag."""

    def __init__(self):
        super().__init__()
        self.cells, self.tags, self.inside = [], set(), False

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.inside = tag == "td"
        if self.inside:
            self.cells.append("")

    def handle_data(self, data):
        if self.inside:
            self.cells[-1] += data

    def handle_endtag(self, tag):
        self.inside = False


def test_markup_in_the_data_shows_as_text():
    hostile = '<script>alert(1)</script> & "quotes"'
    frame = pl.DataFrame({"<b>name": [hostile, None], "value": [1.25, 3.0]})
    parsed = Cells()
    row = {
        "claim": 1,
        "model": hostile,
        "dataset": None,
        "verdict": "undecided",
        "effect": None,
        "low": None,
        "high": None,
    }
    claims = {"statements": {"1": hostile}, "claims": [{**row, "because": hostile}]}
    parsed.feed(page({hostile: b"png"}, hostile, claims, frame, frame, hostile, hostile))
    assert "script" not in parsed.tags
    assert "b" not in parsed.tags
    judged, tables = parsed.cells[:8], parsed.cells[8:]
    assert judged == [hostile, hostile, "all", "undecided", "–", "–", "–", hostile]
    assert tables == [hostile, "1.2", "–", "3.0"] * 2


def test_a_table_has_a_row_for_each_row():
    assert table(pl.DataFrame({"a_b": [1, 2, 3]})).count("<tr>") == 4
    assert "<th>a b</th>" in table(pl.DataFrame({"a_b": [1]}))


def test_the_deepest_layer_is_where_question_anchored_is_lowest():
    rows = []
    for rule, depths in (("flip", [-5.0, -40.0, -20.0]), ("replicate", [-1.0, -2.0, -9.0])):
        for layer, depth in enumerate(depths):
            for anchor, value in (("question", depth), ("answer", 1.0), ("gap", depth - 1.0), ("all", 0.0)):
                rows.append(
                    {
                        "model": "m",
                        "weights": "random",
                        "dataset": "d",
                        "component": "resid",
                        "position": "answer_last",
                        "intervention": "exact_question",
                        "rule": rule,
                        "anchor": anchor,
                        "layer": layer,
                        "n": 30,
                        "delta_p": value,
                        "low": value - 2,
                        "high": value + 2,
                        "auc_clean": 0.812,
                        "auc_intervened": 0.5,
                    }
                )
    found = deepest_layers(pl.DataFrame(rows), "resid", "answer_last").to_dicts()
    assert [(row["rule"], row["layer"], row["ΔP_Q"], row["gap"]) for row in found] == [
        ("flip", 1, -40.0, -41.0),
        ("replicate", 2, -9.0, -10.0),
    ]
    assert {row["weights"] for row in found} == {"random"}
    assert (found[0]["gap_low"], found[0]["gap_high"], found[0]["AUC_clean"]) == (-43.0, -39.0, "0.81")
