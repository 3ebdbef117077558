"""The groups by form: every number against a slow, obvious loop, and truths in which only forms make a gap."""

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import product

import numpy as np
import polars as pl
import pytest

from anchorscope.probe.anchor_rules import ROLES
from anchorscope.summarise.bootstrap import resample
from anchorscope.summarise.grouping import PlaceLogits
from anchorscope.summarise.parts import LOOKED_AT, MIN_EXAMPLES, MIN_PER_GROUP, forms_table
from rounding import assert_same, of_sums

PROBES = ("full", "half_a", "second_b")
BOOTSTRAP_DRAWS = 40
# Gaps are sums over examples and layers in double precision; resamples weigh examples in single precision.
OF_A_GAP, OF_A_DRAW = of_sums(3 * 130, 100.0), of_sums(130, 100.0, np.float32)


def place_of(clean: dict[str, np.ndarray], cut: dict[str, np.ndarray]) -> PlaceLogits:
    """From logits [layers, examples] of each probe, in one repeat."""
    count = clean["full"].shape[1]
    return PlaceLogits(
        {name: values[None] for name, values in clean.items()},
        {(name, "exact_question"): values[None] for name, values in cut.items()},
        folds=np.arange(count)[None] // 2 % 5,
    )


def described(forms: list[str | None], inside: list[bool | None] | None = None) -> pl.DataFrame:
    """One row per example, every second one hallucinated."""
    count = len(forms)
    return pl.DataFrame(
        {
            "id": [f"{number:04d}" for number in range(count)],
            "hallucinated": [number % 2 == 0 for number in range(count)],
            "question_form": pl.Series(forms, dtype=pl.String),
            "answer_form": pl.Series(["other"] * count, dtype=pl.String),
            "answer_in_question": pl.Series(inside or [False] * count, dtype=pl.Boolean),
        }
    )


def table_of(examples: pl.DataFrame, place: PlaceLogits, bootstrap_draws: int = BOOTSTRAP_DRAWS) -> pl.DataFrame:
    with ThreadPoolExecutor(2) as pool:
        return forms_table(examples, place, resample(examples["id"].to_list(), 1, bootstrap_draws, seed=0), pool)


def row_of(table: pl.DataFrame, grouping: str, form: str, rule: str = "honest", logits: str = "measured") -> dict:
    (row,) = table.filter(rule=rule, logits=logits, grouping=grouping, form=form).to_dicts()
    return row


def probability(logit: float) -> float:
    return 1 / (1 + np.exp(-logit))


class Slow:
    """One rule and kind of logits, an example at a time."""

    def __init__(self, place: PlaceLogits, rule: str, logits: str):
        self.place, self.logits, self.roles = place, logits, ROLES[rule]
        self.layers, self.count = place.clean["full"].shape[1:]

    @cache  # noqa: B019
    def cut(self, probe: str, layer: int, example: int) -> float:
        """The cut logit, moved back by the mean shift of the other folds if it is recentred."""
        clean, cut = self.place.clean[probe][0, layer], self.place.changed[probe, "exact_question"][0, layer]
        if self.logits == "measured":
            return cut[example]
        others = [one for one in range(self.count) if self.place.folds[0, one] != self.place.folds[0, example]]
        return cut[example] - np.mean([cut[one] - clean[one] for one in others])

    def anchored(self, role, layer: int, example: int) -> bool:
        clean = self.place.clean[role.labels.name][0, layer, example]
        return (clean >= 0) != (self.cut(role.labels.name, layer, example) >= 0)

    @cache  # noqa: B019
    def change(self, role, layer: int, example: int) -> float:
        clean = self.place.clean[role.measures.name][0, layer, example]
        sign = 1 if clean >= 0 else -1
        return 100 * (probability(sign * self.cut(role.measures.name, layer, example)) - probability(sign * clean))

    def groups(self, role, layer: int, members: list[int]) -> tuple[list[int], list[int]]:
        question = [one for one in members if self.anchored(role, layer, one)]
        return question, [one for one in members if one not in question]

    def gap(self, layer: int, members: list[int], weights: np.ndarray) -> float:
        """The mean over roles."""
        gaps = []
        for role in self.roles:
            question, answer = (
                np.average([self.change(role, layer, one) for one in some], weights=weights[some])
                for some in self.groups(role, layer, members)
            )
            gaps.append(question - answer)
        return float(np.mean(gaps))

    def fewest(self, layer: int, members: list[int]) -> int:
        return min(len(some) for role in self.roles for some in self.groups(role, layer, members))

    def shares(self, members: list[int]) -> tuple[float, float, float]:
        """Of the Question-Anchored, of the Answer-Anchored, and which share of them is Question-Anchored."""
        found: list[tuple[float, float, float]] = []
        for role, layer in product(self.roles, range(self.layers)):
            question, answer = self.groups(role, layer, list(range(self.count)))
            mine = [one for one in question if one in members]
            rest = [one for one in answer if one in members]
            found.append((len(mine) / len(question), len(rest) / len(answer), len(mine) / len(members)))
        return tuple(np.mean(found, axis=0))


@pytest.fixture(scope="module")
def mixed() -> tuple[pl.DataFrame, PlaceLogits]:
    """Three layers, two large forms, and a small one whose verdicts hardly change in the first layer."""
    random = np.random.default_rng(4)
    forms = random.choice(["who", "choice", "when"], p=[0.5, 0.35, 0.15], size=130).tolist()
    often = np.array([{"who": 0.35, "choice": 0.6, "when": 0.5}[form] for form in forms])
    own = 1.5 * random.normal(size=130)
    clean = {name: own + 0.5 * random.normal(size=(3, 130)) for name in PROBES}
    rate = np.stack([np.where(np.array(forms) == "when", 0.0, often), often, often])
    cut = {name: np.where(random.random((3, 130)) < rate, -1.0, 0.7) * clean[name] + 0.1 for name in PROBES}
    inside = [form == "choice" and number % 3 > 0 for number, form in enumerate(forms)]
    return described(forms, inside), place_of(clean, cut)


@pytest.mark.parametrize(("rule", "logits"), LOOKED_AT)
def test_every_number_is_that_of_a_plain_loop(mixed, rule, logits):
    examples, place = mixed
    table = table_of(examples, place)
    weights = resample(examples["id"].to_list(), 1, BOOTSTRAP_DRAWS, seed=0).weights
    slow, once = Slow(place, rule, logits), np.ones(130)
    of = {form: [n for n, one in enumerate(examples["question_form"]) if one == form] for form in ("who", "choice")}
    for form, members in of.items():
        row = row_of(table, "question_form", form, rule, logits)
        wrong = examples["hallucinated"].to_list()
        assert (row["n"], row["n_right"]) == (len(members), sum(not wrong[one] for one in members))
        assert row["share"] == pytest.approx(len(members) / 130)
        found = row["share_question"], row["share_answer"], row["question_anchored"]
        assert found == pytest.approx(slow.shares(members))
        layers = [layer for layer in range(3) if slow.fewest(layer, members) >= 2]
        if len(members) >= MIN_EXAMPLES:
            assert_same(row["gap"], np.mean([slow.gap(layer, members, once) for layer in layers]), OF_A_GAP)
    members = of["who"]
    drawn = [np.mean([slow.gap(layer, members, one) for layer in range(3)]) for one in weights]
    row = row_of(table, "question_form", "who", rule, logits)
    assert_same([row["gap_low"], row["gap_high"]], np.quantile(drawn, [0.025, 0.975]), OF_A_DRAW)


@pytest.mark.parametrize(("rule", "logits"), LOOKED_AT)
def test_at_equal_form_a_gap_is_the_mean_of_the_forms_gaps(mixed, rule, logits):
    examples, place = mixed
    table, slow, once = table_of(examples, place), Slow(place, rule, logits), np.ones(130)
    members = {
        form: [number for number, one in enumerate(examples["question_form"]) if one == form]
        for form in ("who", "choice", "when")
    }
    equal, whatever, covered = [], [], []
    for layer in range(3):
        there = {form: mine for form, mine in members.items() if slow.fewest(layer, mine) >= MIN_PER_GROUP}
        sizes = [len(mine) for mine in there.values()]
        equal.append(np.average([slow.gap(layer, mine, once) for mine in there.values()], weights=sizes))
        whatever.append(slow.gap(layer, [one for mine in there.values() for one in mine], once))
        covered.append(sum(sizes))
    assert len(set(covered)) > 1, "a form is too rare in a group at some layer"
    row, beside = (row_of(table, "question_form", form, rule, logits) for form in ("equal", "covered"))
    assert_same([row["gap"], beside["gap"]], [np.mean(equal), np.mean(whatever)], OF_A_GAP)
    assert row["n"] == beside["n"] == round(np.mean(covered))
    assert row["share"] == pytest.approx(np.mean(covered) / 130)
    assert row["gap_low"] < row["gap"] < row["gap_high"]


def test_the_gap_without_answers_that_stand_in_the_question_is_that_of_the_others(mixed):
    examples, place = mixed
    slow = Slow(place, "honest", "measured")
    outside = [number for number, inside in enumerate(examples["answer_in_question"]) if not inside]
    row = row_of(table_of(examples, place), "answer_in_question", "no")
    assert row["n"] == len(outside)
    assert_same(row["gap"], np.mean([slow.gap(layer, outside, np.ones(130)) for layer in range(3)]), OF_A_GAP)


def planted(by_form: bool, seed: int, count: int = 600) -> tuple[pl.DataFrame, PlaceLogits]:
    """Verdicts that the cut turns around: of choices often and of others seldom, or of four in ten of either form.

    If it hangs on the form alone, it is drawn anew for each prompt; else it is the example's own.
    """
    random = np.random.default_rng(seed)
    forms = np.where(random.random(count) < 0.5, "choice", "which_what")
    sign = np.where(np.arange(count) % 2, 2.0, -2.0)
    clean = {name: np.broadcast_to(sign, (2, count)) for name in PROBES}
    own = np.broadcast_to(random.random(count) < 0.4, (2, count))
    rate = np.where(forms == "choice", 0.7, 0.1)
    turned = {name: random.random((2, count)) < rate if by_form else own for name in PROBES}
    cut = {name: np.where(turned[name], -1.0, 1.0) * clean[name] for name in PROBES}
    return described(forms.tolist()), place_of(clean, cut)


def test_a_gap_that_forms_alone_make_goes_at_equal_form():
    """By the rates: the groups differ by (5/8 - 1/4) of what a turned verdict costs; within a form by nothing."""
    cost = 100 * (probability(-2.0) - probability(2.0))
    covered, gaps = 0, []
    for seed in range(10):
        table = table_of(*planted(by_form=True, seed=seed), bootstrap_draws=300)
        whole = row_of(table, "all", "all")
        assert whole["gap_high"] < 0
        choice = row_of(table, "question_form", "choice")
        assert choice["share_question"] == pytest.approx(7 / 8, abs=0.06)
        assert choice["share_answer"] == pytest.approx(1 / 4, abs=0.06)
        assert choice["question_anchored"] == pytest.approx(0.7, abs=0.06)
        equal = row_of(table, "question_form", "equal")
        assert equal["share"] == 1
        gaps.append((whole["gap"], equal["gap"]))
        covered += equal["gap_low"] <= 0 <= equal["gap_high"]
    assert np.mean(gaps, axis=0) == pytest.approx([(5 / 8 - 1 / 4) * cost, 0], abs=2.5)
    assert covered >= 8, "a 95 % interval may miss once or twice"


def test_a_gap_that_examples_make_stays_at_equal_form():
    cost = 100 * (probability(-2.0) - probability(2.0))
    table = table_of(*planted(by_form=False, seed=0))
    for grouping, form in (("all", "all"), ("question_form", "equal"), ("question_form", "choice")):
        assert row_of(table, grouping, form)["gap"] == pytest.approx(cost)


def test_small_forms_are_counted_without_a_gap_and_unknown_ones_are_not():
    _, place = planted(by_form=True, seed=0, count=100)
    forms = ["who"] * 60 + ["when"] * 30 + ["where"] + [None] * 9
    table = table_of(described(forms, [None] * 100), place)
    found = {row["form"]: row for row in table.filter(rule="flip", grouping="question_form").to_dicts()}
    assert [found[form]["n"] for form in ("who", "when", "where")] == [60, 30, 1]
    assert [found[form]["gap"] is None for form in ("who", "when", "where")] == [False, True, True]
    assert set(found) == {"who", "when", "where", "equal", "covered"}
    assert found["equal"]["n"] == 90
    assert "answer_in_question" not in set(table["grouping"])
