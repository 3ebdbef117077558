"""Four accounts of what the knockout does: their densities, their fits, and the verdict on kinds."""

import json
from itertools import combinations_with_replacement, product
from statistics import NormalDist

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, multivariate_t

from anchorscope.extract.axes import Headline
from anchorscope.files.processes import run_apart
from anchorscope.summarise import weigh_layers
from anchorscope.summarise.accounts import (
    FIELDS,
    FREEDOM,
    SMALLEST_SHARE,
    Account,
    design_of,
    fit_accounts,
    gains_of,
    log_density,
    standardise,
    weigh,
)
from anchorscope.summarise.likelihood import GAIN_TOLERANCE
from anchorscope.summarise.verdict_on_kinds import (
    BY_DEGREES,
    COMPARED,
    LEAST_GAIN,
    ONE_MECHANISM,
    PLANTED,
    SHARES,
    TAILS,
    TWO_KINDS,
    UNDECIDED,
    VISIBLE,
    judge,
    least_share_seen,
)
from anchorscope.summarise.weigh_kinds import weigh_kinds
from planted_kinds import planted
from small_things import ROOT

ACCOUNTS = tuple(Account(*one) for one in product((False, True), (False, True), TAILS))
RECORD = json.loads((ROOT / "benchmarks" / "results" / "kinds-h200.json").read_text(encoding="utf-8"))["results"]


def natural_parameters(account: Account, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ones of six examples, and their cut logits."""
    random = torch.Generator().manual_seed(seed)
    count = 7 + account.degrees + 2 * account.two_kinds
    natural = 0.5 * torch.randn((count, 1, 1, 6), generator=random, dtype=torch.float64)
    return natural, torch.randn((1, 2, 1, 6), generator=random, dtype=torch.float64)


@pytest.mark.parametrize("account", ACCOUNTS, ids=str)
def test_a_density_is_that_of_scipy(account):
    """A mixture of two bivariate normal or t distributions, each with spreads of its own, around one middle or two."""
    natural, cut = natural_parameters(account, 1)
    found = log_density(account, natural, cut).value[0, 0]
    for example in range(6):
        one = natural[:, 0, 0, example].numpy()
        r = np.tanh(one[4]) if account.degrees else 0.0
        y = cut[0, :, 0, example].numpy()

        def density(middle: np.ndarray, spread: np.ndarray, y: np.ndarray = y, r: float = r) -> float:
            scale = np.outer(spread, spread) * np.array([[1, r], [r, 1]])
            if account.tails == "normal":
                return multivariate_normal.pdf(y, middle, scale)
            return multivariate_t.pdf(y, middle, scale, df=FREEDOM)

        share = SMALLEST_SHARE + (1 - 2 * SMALLEST_SHARE) / (1 + np.exp(-one[-1]))
        first = density(one[:2], np.exp(one[2:4]))
        second = density(one[-5:-3] if account.two_kinds else one[:2], np.exp(one[-3:-1]))
        expected = (1 - share) * first + share * second
        assert float(found[example]) == pytest.approx(np.log(expected), rel=1e-10)


@pytest.mark.parametrize("account", ACCOUNTS, ids=str)
def test_derivatives_are_those_of_automatic_differentiation(account):
    natural, cut = natural_parameters(account, 2)
    natural.requires_grad_()
    found = log_density(account, natural, cut)
    (gradient,) = torch.autograd.grad(found.value.sum(), natural, create_graph=True)
    torch.testing.assert_close(found.gradient.detach(), gradient.detach(), rtol=1e-10, atol=1e-10)
    for one, two in combinations_with_replacement(range(len(natural)), 2):
        (second,) = torch.autograd.grad(gradient[one].sum(), natural, retain_graph=True)
        mine = found.second.get((one, two), 0) + found.square[one] * found.square[two]
        torch.testing.assert_close(mine.detach(), second[two], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "account",
    [pytest.param(one, marks=[] if one.degrees else pytest.mark.slow) for one in ACCOUNTS if not one.two_kinds],
    ids=str,
)
def test_one_curve_is_fitted_as_by_a_general_optimiser(account):
    """Near the fit, a general optimiser finds nothing higher. (Further off a mixture may have other optima.)"""
    truth = planted("a curved line", 1, 120, 0.4, seed=3)
    logits = standardise(truth.clean[0, :1], truth.cut[0, :1])
    weights = torch.ones((1, 1, 120), dtype=torch.float64)
    found = fit_accounts(logits, weights)[account]
    design = design_of(account, logits)

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        some = torch.from_numpy(parameters)[None, None].requires_grad_()
        value = log_density(account, design.natural(some), logits.cut[:, :, None]).value.sum()
        lost = (design.ridge * some**2).sum() / 2 - value
        (slope,) = torch.autograd.grad(lost, some)
        return float(lost.detach()), slope[0, 0].numpy()

    start = found.parameters[0, 0].numpy()
    near = [(one - 0.1, one + 0.1) for one in start]
    begin = np.random.default_rng(0).uniform(*np.array(near).T)
    best = minimize(loss, begin, jac=True, bounds=near, method="L-BFGS-B", options={"maxiter": 2000})
    assert float(found.value[0, 0]) > -best.fun - 120 * LEAST_GAIN / 10
    assert best.fun < loss(begin)[0] - 0.1  # it has moved
    assert loss(start)[0] == pytest.approx(-float(found.value[0, 0]), abs=1e-6)


def test_two_planted_kinds_come_back():
    truth = planted("25 % lost", 1, 2000, 0.4, seed=4)
    weighed = weigh(truth.clean[0], truth.cut[0], torch.arange(2000) // 2 % 5)
    strong = slice(1, None)  # the first layer's clean logits carry less
    np.testing.assert_allclose(weighed.share[strong], 0.25, atol=0.05)
    np.testing.assert_allclose(weighed.level[strong], 1.7, atol=0.15)
    kept = weighed.kept[1, 0] - (0.6 + 0.85 * weighed.at[1, 0])
    assert kept[3:-3].abs().max() < 0.3
    lost = truth.lost[0].numpy()
    chance = weighed.lost[1].numpy()
    for low, high in (
        (0.0, 0.1),
        (0.1, 0.5),
        (0.5, 0.9),
        (0.9, 1.0),
    ):  # of those that it calls likely, as many are lost
        some = (chance >= low) & (chance <= high)
        assert lost[some].mean() == pytest.approx(chance[some].mean(), abs=4 * 0.5 / some.sum() ** 0.5)
    assert chance[lost].mean() - chance[~lost].mean() > 0.4


def test_an_example_is_judged_by_what_was_fitted_to_other_folds():
    """An outlier in one fold does not change what the fold's own accounts say of its fellows."""
    truth = planted("one mechanism", 1, 100, 0.4, seed=5)
    folds = torch.arange(100) // 2 % 5
    before = weigh(truth.clean[0, :1], truth.cut[0, :1], folds)
    far = truth.cut[0, :1].clone()
    far[..., 0] += 0.5
    after = weigh(truth.clean[0, :1], far, folds)
    scale = torch.log(far.std(-1) / truth.cut[0, :1].std(-1)).sum()  # of the standardised logits
    mates = (folds == folds[0]) & (torch.arange(100) != 0)
    for degrees in (False, True):
        upper = FIELDS.index((False, degrees))
        moved = (after.densities - before.densities)[:, upper]
        assert (moved[0, mates] - scale).abs().max() < 0.02
        assert moved[0, 0].abs() > 0.02


def test_the_lower_row_holds_the_upper_where_a_second_line_fits_no_better():
    """Without kinds it says what the upper row says, of most examples to the bit; with kinds it does not."""
    folds = torch.arange(400) // 2 % 5
    alike = {}
    for name in ("two spreads around one line", "50 % lost"):
        truth = planted(name, 1, 400, 0.4, seed=9)
        said = dict(zip(FIELDS, weigh(truth.clean[0], truth.cut[0], folds).densities.unbind(1), strict=True))
        alike[name] = [
            float((said[True, degrees] == said[False, degrees]).double().mean()) for degrees in (False, True)
        ]
    assert min(alike["two spreads around one line"]) > 0.5
    assert max(alike["50 % lost"]) < 0.1


def row_of(n: int = 1000, **gains: float) -> dict[str, float]:
    """A row of so many examples with some gains, all others zero, with standard errors of 0.004."""
    row = {name: gains.get(name, 0.0) for name in COMPARED}
    return row | {f"{name}_error": 0.004 for name in row} | {"correlation": 0.4, "n": n}


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({"kinds": LEAST_GAIN + 0.01, "degrees": 0.3}, TWO_KINDS),
        ({"kinds": LEAST_GAIN + 0.005, "degrees": 0.3}, BY_DEGREES),
        ({"kinds": -0.01, "degrees": -0.001}, ONE_MECHANISM),
        ({"kinds": -0.01, "degrees": 0.3}, BY_DEGREES),
        ({"kinds": -0.01, "degrees": 0.3, "n": 100}, UNDECIDED),  # too few to have shown kinds
        ({"kinds": -0.01, "degrees": -0.001, "n": 100}, UNDECIDED),
        ({"kinds": LEAST_GAIN + 0.01, "degrees": 0.3, "n": 100}, TWO_KINDS),
    ],
)
def test_each_verdict_is_reached_by_its_rule(gains, verdict):
    assert judge(row_of(**gains), verdicts=1).verdict == verdict


def test_too_few_examples_decide_nothing_and_more_verdicts_need_more():
    wide = row_of(kinds=0.02, degrees=0.3) | {"kinds_error": 0.05}
    assert judge(wide, verdicts=1).verdict == UNDECIDED
    assert VISIBLE < 0.02 + 1.645 * 0.05
    near = row_of(kinds=LEAST_GAIN + 0.008, degrees=0.3)  # two standard errors above the least gain
    assert judge(near, verdicts=1).verdict == TWO_KINDS
    assert judge(near, verdicts=10).verdict == BY_DEGREES


def test_planted_kinds_are_those_of_the_record():
    rows = {(row["examples"], row["correlation"], row["truth"]): row for row in RECORD}
    for (examples, correlation), known in PLANTED.items():
        for share, gain, spread in zip(SHARES, *known, strict=True):
            row = rows[examples, correlation, f"{100 * share:.0f} % lost"]
            assert (gain, spread) == (row["gain of kinds"], pytest.approx(row["its error"] * examples**0.5, abs=0.01))
    assert len(PLANTED) == len({(row["examples"], row["correlation"]) for row in RECORD})


@pytest.mark.parametrize("examples", [150, 250, 400, 1000])
def test_the_least_share_that_is_seen_agrees_with_how_often_planted_kinds_were_seen(examples):
    """A share that was called two kinds in nine of ten draws is not below what is said, one in six of ten not above."""
    for row in RECORD:
        if row["examples"] == examples and row["truth"] in ("10 % lost", "25 % lost"):
            share = float(row["truth"].split()[0]) / 100
            least = least_share_seen(examples, row["correlation"], NormalDist().inv_cdf(0.95))
            if row[TWO_KINDS] >= 0.9:
                assert least is not None
                assert least <= share
            if row[TWO_KINDS] <= 0.6:
                assert least is None or least > share


def test_more_examples_show_smaller_shares_and_more_verdicts_need_larger_ones():
    sure = NormalDist().inv_cdf(0.95)
    shares = [least_share_seen(examples, 0.4, sure) for examples in (300, 400, 600)]
    assert shares == sorted(set(shares), reverse=True)
    assert least_share_seen(400, 0.4, 2 * sure) > least_share_seen(400, 0.4, sure)
    assert least_share_seen(50, 0.4, sure) is None


def verdict_on(truth: str, count: int, seed: int, draws: int = 1) -> list[str]:
    planted_ = planted(truth, draws, count, 0.4, seed)
    found = []
    for clean, cut in zip(planted_.clean, planted_.cut, strict=True):
        row = {"correlation": 0.4, "n": count}
        for name, by_layer in gains_of(weigh(clean, cut, torch.arange(count) // 2 % 5)).items():
            gain = by_layer.mean(0)
            row |= {name: float(gain.mean()), f"{name}_error": float(gain.std() / count**0.5)}
        found.append(judge(row, verdicts=1).verdict)
    return found


@pytest.mark.parametrize(
    ("truth", "verdict"),
    [
        ("50 % lost", TWO_KINDS),
        ("lost by form", TWO_KINDS),
        ("slopes spread evenly", BY_DEGREES),
        ("a curved line", BY_DEGREES),
        ("two spreads around one line", BY_DEGREES),
        ("a tight and a wide cloud", TWO_KINDS),
    ],
)
def test_the_verdict_can_come_out_either_way(truth, verdict):
    assert verdict_on(truth, 400, seed=6) == [verdict]


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["heavy tails, by example", "spread unlike in right and wrong", "a saturating line"])
def test_what_is_merely_misshapen_is_not_called_two_kinds(truth):
    assert TWO_KINDS not in verdict_on(truth, 1000, seed=7, draws=10)


def test_kinds_that_are_forms_are_told_apart_by_the_form_and_do_not_remain_within_it(monkeypatch):
    """The lost are just those of one form, so that within each form nothing is left to be of two kinds.

    Each layer's gains are those of the layer alone, whichever are weighed together, and in which process.
    """
    count = 500
    truth = planted("lost by form", 1, count, 0.4, seed=8)
    lost = truth.lost[0].numpy()
    keys = {"component": "resid", "position": "answer_last", "intervention": "exact_question", "repeat": 0}
    rows = [
        {
            **keys,
            "layer": layer,
            "id": f"{example:04d}",
            "cluster": f"{example:04d}",
            "fold": example // 2 % 5,
            "hallucinated": example % 2 == 1,
            "popularity": None,
            "question_form": "choice" if lost[example] else "yes_no",
            "answer_form": "other",
            "answer_in_question": False,
        }
        | {
            f"logit_{state}_{probe}": float(values[0, layer, prompt, example])
            for state, values in (("clean", truth.clean), ("ko", truth.cut))
            for probe, prompt in (("full", 0), ("half_a", 0), ("half_b", 0), ("second_b", 1))
        }
        for layer in range(3)
        for example in range(count)
    ]
    delta = pl.DataFrame(rows, schema_overrides={"popularity": pl.Int64})
    texts = {"question": "Is it?", "property": None, "answer": "Yes"}
    answers = pl.DataFrame([{"id": f"{example:04d}", **texts} for example in range(count)])
    headline = Headline("resid", "answer_last")
    monkeypatch.setattr(weigh_layers, "A_PROCESS", count)  # another process for all, and one for those within forms
    begun = []
    monkeypatch.setattr(weigh_layers, "run_apart", lambda *given: begun.append(given) or run_apart(*given))
    accounts, told = weigh_kinds(delta, answers, headline, bootstrap_draws=200, seed=0, processes=2)
    assert len(begun) == 2
    overall = {row["among"]: row for row in accounts.filter(pl.col("layer").is_null()).to_dicts()}
    assert judge(overall["all"], verdicts=1).verdict == TWO_KINDS
    for form in ("choice", "yes_no"):
        assert judge(overall[f"question_form {form}"], verdicts=1).verdict != TWO_KINDS
    shares = {row["value"]: row["share_lost"] for row in told.filter(quality="question_form").to_dicts()}
    assert shares["choice"] - shares["yes_no"] > 0.4
    assert accounts["layer"].to_list()[:4] == [0, 1, 2, None]
    monkeypatch.setattr("anchorscope.summarise.weigh_kinds.MIN_TOLD", count + 1)
    first, none = weigh_kinds(delta.filter(layer=0), answers, headline, bootstrap_draws=200, seed=0)
    assert judge(first.row(1, named=True), verdicts=1).verdict == TWO_KINDS
    assert none.is_empty()
    for layer in range(3):
        alone = weigh(truth.clean[0, layer, None], truth.cut[0, layer, None], torch.arange(count) // 2 % 5)
        for name, by_example in gains_of(alone).items():
            # Where a fit ends: two accounts are compared.
            assert accounts[name][layer] == pytest.approx(float(by_example.mean()), abs=2 * GAIN_TOLERANCE)
