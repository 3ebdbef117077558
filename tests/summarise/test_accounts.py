"""Four accounts of what the knockout does: their densities, their fits, and the verdict on kinds."""

from itertools import combinations_with_replacement

import numpy as np
import polars as pl
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal, multivariate_t

from anchorscope.extract.axes import Headline
from anchorscope.summarise.accounts import (
    ACCOUNTS,
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
from anchorscope.summarise.square import COMPARED, HEAVY, TAILS
from anchorscope.summarise.verdict_on_kinds import (
    BY_DEGREES,
    LEAST_GAIN,
    ONE_MECHANISM,
    PLANTED,
    TWO_KINDS,
    UNDECIDED,
    VISIBLE,
    judge,
    share_that_gains,
)
from anchorscope.summarise.weigh_kinds import weigh_kinds
from planted_kinds import planted


def natural_parameters(account: Account, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ones of six examples, and their cut logits."""
    random = torch.Generator().manual_seed(seed)
    count = 4 + account.degrees + 3 * account.two_kinds
    natural = 0.5 * torch.randn((count, 1, 1, 6), generator=random, dtype=torch.float64)
    return natural, torch.randn((1, 2, 1, 6), generator=random, dtype=torch.float64)


@pytest.mark.parametrize("account", ACCOUNTS, ids=str)
def test_a_density_is_that_of_scipy(account):
    """A mixture of two bivariate normal or t distributions that have their scale matrix in common, or one alone."""
    natural, cut = natural_parameters(account, 1)
    found = log_density(account, natural, cut).value[0, 0]
    for example in range(6):
        one = natural[:, 0, 0, example].numpy()
        r = np.tanh(one[4]) if account.degrees else 0.0
        spread = np.exp(one[2:4])
        scale = np.outer(spread, spread) * np.array([[1, r], [r, 1]])
        y = cut[0, :, 0, example].numpy()

        def density(middle: np.ndarray, y: np.ndarray = y, scale: np.ndarray = scale) -> float:
            if account.tails == "normal":
                return multivariate_normal.pdf(y, middle, scale)
            return multivariate_t.pdf(y, middle, scale, df=FREEDOM)

        expected = density(one[:2])
        if account.two_kinds:
            share = SMALLEST_SHARE + (1 - 2 * SMALLEST_SHARE) / (1 + np.exp(-one[-1]))
            expected = (1 - share) * expected + share * density(one[-3:-1])
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
        torch.testing.assert_close(found.second[one, two].detach(), second[two], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("account", [one for one in ACCOUNTS if not one.two_kinds], ids=str)
def test_one_curve_is_fitted_as_by_a_general_optimiser(account):
    """The penalised likelihood of scipy's optimum is not higher; it has one optimum near the least squares."""
    truth = planted("a curved line", 1, 120, 0.4, seed=3)
    logits = standardise(truth.clean[0, :1], truth.cut[0, :1])
    weights = torch.ones((1, 1, 120), dtype=torch.float64)
    found = fit_accounts(logits, weights)[account]
    design = design_of(account, logits)

    def loss(parameters: np.ndarray) -> float:
        some = torch.from_numpy(parameters)[None, None]
        value = log_density(account, design.natural(some), logits.cut[:, :, None]).value.sum()
        return float((design.ridge * some**2).sum() / 2 - value)

    start = found.parameters[0, 0].numpy()
    best = minimize(loss, np.where(design.ridge.numpy() > 0, 0.0, start), method="BFGS", options={"maxiter": 2000})
    assert float(found.value[0, 0]) == pytest.approx(
        -best.fun, abs=0.02
    )  # a tolerance of 1e-5 for each of 120, tenfold


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
    for account in ACCOUNTS:
        if not account.two_kinds:
            moved = after.densities[account] - before.densities[account]
            assert (moved[0, mates] - scale).abs().max() < 0.02, account
            assert moved[0, 0].abs() > 0.02, account


def row_of(**gains: float) -> dict[str, float]:
    """A row whose gains are all as given under both tails, with standard errors of 0.004."""
    row = {
        f"{name}_{tails}": gains.get(f"{name}_{tails}", gains.get(name, 0.0)) for name in COMPARED for tails in TAILS
    }
    row[HEAVY] = gains.get(HEAVY, 0.1)
    return row | {f"{name}_error": 0.004 for name in row} | {"correlation": 0.4}


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ({"kinds": LEAST_GAIN + 0.01, "degrees": 0.3}, TWO_KINDS),
        ({"kinds": LEAST_GAIN + 0.005, "degrees": 0.3}, BY_DEGREES),
        ({"kinds_normal": 0.3, "kinds_student": 0.0, "degrees": 0.3}, BY_DEGREES),  # merely heavy tails
        ({"kinds_normal": 0.3, "kinds_student": 0.0, "degrees": 0.3, HEAVY: -0.1}, UNDECIDED),
        ({"kinds_normal": 0.0, "kinds_student": 0.3, "degrees": 0.3}, UNDECIDED),
        ({"kinds_normal": 0.0, "kinds_student": 0.3, "degrees": 0.3, HEAVY: -0.1}, BY_DEGREES),
        ({"kinds": -0.01, "degrees": -0.001}, ONE_MECHANISM),
        ({"kinds": -0.01, "degrees": 0.3}, BY_DEGREES),
    ],
)
def test_each_verdict_is_reached_by_its_rule(gains, verdict):
    assert judge(row_of(**gains), verdicts=1).verdict == verdict


def test_too_few_examples_decide_nothing_and_more_verdicts_need_more():
    wide = row_of(kinds=0.02, degrees=0.3) | {f"kinds_{tails}_error": 0.05 for tails in TAILS}
    assert judge(wide, verdicts=1).verdict == UNDECIDED
    assert VISIBLE < 0.02 + 1.645 * 0.05
    near = row_of(kinds=LEAST_GAIN + 0.008, degrees=0.3)  # two standard errors above the least gain
    assert judge(near, verdicts=1).verdict == TWO_KINDS
    assert judge(near, verdicts=10).verdict == BY_DEGREES
    assert judge(near, verdicts=10).could_see > judge(near, verdicts=1).could_see


def test_the_share_that_could_be_seen_is_read_off_planted_kinds():
    tenth, quarter, other = PLANTED[0.4][1], PLANTED[0.4][2], PLANTED[0.8][2]
    assert share_that_gains(quarter, 0.4) == pytest.approx(0.25)
    assert share_that_gains((quarter + other) / 2, 0.6) == pytest.approx(0.25)
    assert share_that_gains(tenth / 2, 0.4) == pytest.approx(0.05)
    assert share_that_gains(0.3, 0.4) is None


def verdict_on(truth: str, count: int, seed: int, draws: int = 1) -> list[str]:
    planted_ = planted(truth, draws, count, 0.4, seed)
    found = []
    for clean, cut in zip(planted_.clean, planted_.cut, strict=True):
        row = {"correlation": 0.4}
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
    ],
)
def test_the_verdict_can_come_out_either_way(truth, verdict):
    assert verdict_on(truth, 400, seed=6) == [verdict]


@pytest.mark.slow
@pytest.mark.parametrize("truth", ["heavy tails, by example", "spread unlike in right and wrong", "a saturating line"])
def test_what_is_merely_misshapen_is_not_called_two_kinds(truth):
    assert TWO_KINDS not in verdict_on(truth, 1000, seed=7, draws=10)


def test_kinds_that_are_forms_are_told_apart_by_the_form_and_do_not_remain_within_it():
    """The lost are just those of one form, so that within each form nothing is left to be of two kinds."""
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
    accounts, told = weigh_kinds(delta, answers, Headline("resid", "answer_last"), draws=200, seed=0)
    overall = {row["among"]: row for row in accounts.filter(pl.col("layer").is_null()).to_dicts()}
    assert judge(overall["all"], verdicts=1).verdict == TWO_KINDS
    for form in ("choice", "yes_no"):
        assert judge(overall[f"question_form {form}"], verdicts=1).verdict != TWO_KINDS
    shares = {row["value"]: row["share_lost"] for row in told.filter(quality="question_form").to_dicts()}
    assert shares["choice"] - shares["yes_no"] > 0.4
    assert accounts["layer"].to_list()[:4] == [0, 1, 2, None]
