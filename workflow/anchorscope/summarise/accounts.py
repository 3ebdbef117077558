"""Two kinds, or one: four accounts of what the knockout does to an example, and how well each predicts others.

Under each of two prompts an example has a clean logit x and a cut one y. An account is a density of both cut logits
given both clean ones:

| | what is left is independent | correlated: examples also differ by degrees |
|---|---|---|
| one curve | one mechanism | by degrees |
| two: one bends as it likes, one is flat | two kinds | two kinds, and degrees within them |

A curve is a natural spline of the clean logit, one for each prompt. What is left is normal or Student's t. Its spread
may change with the clean logit's size and sign; in the right column it is correlated between the prompts. All this is
alike in both rows, so that the lower row adds a second, flat line and nothing else. An example lies along the same
line under both prompts.

All layers, folds and draws are fitted together.
"""

import math
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product

import torch
from torch import Tensor

from anchorscope.summarise.likelihood import Derivatives, Design, maximise
from anchorscope.summarise.square import COMPARED, HEAVY, TAILS

KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)  # of a curve, quantiles of the clean logits
SPREAD = 3  # columns of a logarithm of the spread: the same everywhere, by size, by sign
WIDEST = 3.0  # standard deviations of the clean logit beyond which the spread stays as it is
FREEDOM = 4  # degrees of freedom of Student's t
ALIKE = 1e-3  # of the cut logits' spread: one curve that leaves less leaves nothing
SMALLEST_SHARE = 0.01  # of examples along either line, so that neither can fade away
STARTING_STEPS = 3  # of each start of a fit with two kinds; the best one goes on
STEPS = 25


@dataclass(frozen=True)
class Account:
    """One field of the square, with one kind of tails."""

    two_kinds: bool
    degrees: bool
    tails: str


ACCOUNTS = tuple(Account(*one) for one in product((False, True), (False, True), TAILS))


@dataclass(frozen=True)
class Logits:
    """Standardised logits of some runs (layers, draws), and what curves and spreads are made of."""

    clean: Tensor  # [runs, prompts, examples]
    cut: Tensor
    curve: Tensor  # [runs, prompts, examples, knots], the spline's columns
    diagonal: Tensor  # [runs, prompts], the slope at which a logit is kept as it is


@dataclass(frozen=True)
class Fitted:
    """Parameters of an account, [runs, folds, parameters], and the log likelihood, [runs, folds]."""

    parameters: Tensor
    value: Tensor


def standardise(clean: Tensor, cut: Tensor) -> Logits:
    """From logits [runs, prompts, examples]; a constant is added to every log density, the same for all accounts."""
    (clean, spread), (cut, wide) = (_scaled(values) for values in (clean, cut))
    return Logits(clean, cut, _spline(clean), (spread / wide)[..., 0])


def _scaled(values: Tensor) -> tuple[Tensor, Tensor]:
    spread = values.std(-1, keepdim=True).clamp(min=1e-9)
    return (values - values.mean(-1, keepdim=True)) / spread, spread


def _spline(clean: Tensor) -> Tensor:
    """The columns of a natural cubic spline, a straight line beyond its outer knots: [runs, prompts, examples, knots].

    The first two are the constant and the line.
    """
    places = torch.tensor(KNOTS, dtype=clean.dtype, device=clean.device)
    knots = torch.quantile(clean, places, dim=-1)[..., None]  # [knots, runs, prompts, 1]
    cubes = (clean - knots).clamp(min=0) ** 3
    bends = (cubes[:-1] - cubes[-1]) / (knots[-1] - knots[:-1]).clamp(min=1e-9)
    return torch.stack([torch.ones_like(clean), clean, *(bends[:-1] - bends[-1])], dim=-1)


def design_of(account: Account, logits: Logits) -> Design:
    """What each natural parameter is a linear function of, and which coefficients are held back a little.

    The natural parameters of an example are the two curves, the logarithms of the two spreads, the correlation (its
    Fisher transform), and with two kinds the two flat levels and the share of those that are lost.
    """
    within = logits.clean.clamp(-WIDEST, WIDEST)
    one = torch.ones_like(within[:, 0])[..., None]
    spread = torch.stack([torch.ones_like(within), within.abs(), within], dim=-1)
    columns = [logits.curve[:, 0], logits.curve[:, 1], spread[:, 0], spread[:, 1]]
    held = [2, 2, 1, 1]  # the columns of each that are not held back
    if account.degrees:
        columns, held = [*columns, one], [*held, 0]
    if account.two_kinds:
        columns, held = [*columns, one, one, one], [*held, 1, 1, 1]
    ridge = [
        float(number >= free) for part, free in zip(columns, held, strict=True) for number in range(part.shape[-1])
    ]
    return Design(columns, one.new_tensor(ridge))


def log_density(account: Account, natural: Tensor, cut: Tensor) -> Derivatives:
    """Of cut logits [runs, prompts, 1, examples], with derivatives by the natural parameters [parameters, ...]."""
    kept = _along(account, natural[:2], natural[2:4], natural[4] if account.degrees else None, cut)
    if not account.two_kinds:
        return kept
    lost = _along(account, natural[-3:-1], natural[2:4], natural[4] if account.degrees else None, cut)
    return _mixed(kept, lost, natural[-1], len(natural))


def _along(account: Account, middle: Tensor, spread: Tensor, correlation: Tensor | None, cut: Tensor) -> Derivatives:
    """Around one line, by its middle [2, ...], log spread [2, ...] and, where there is one, correlation."""
    first, second = cut[:, 0], cut[:, 1]
    narrow = torch.exp(-spread)  # [2, ...]
    u = torch.stack([first - middle[0], second - middle[1]]) * narrow
    r = torch.tanh(correlation) if correlation is not None else torch.zeros_like(u[0])
    free = 1 - r * r
    v = (u - r * u.flip(0)) / free  # the inverse of the correlation matrix times u
    square = (u * v).sum(0)
    if account.tails == "normal":
        value, slope, bend = (
            -math.log(2 * math.pi) - square / 2,
            torch.full_like(square, -0.5),
            torch.zeros_like(square),
        )
    else:
        constant = math.lgamma(FREEDOM / 2 + 1) - math.lgamma(FREEDOM / 2) - math.log(FREEDOM * math.pi)
        value = constant - (FREEDOM / 2 + 1) * torch.log(1 + square / FREEDOM)
        slope = -(FREEDOM / 2 + 1) / (FREEDOM + square)
        bend = -slope / (FREEDOM + square)
    value = value - spread.sum(0) - torch.log(free) / 2
    moves = torch.cat([-2 * narrow * v, -2 * u * v])  # of the square, by middles and log spreads
    gradient = slope * moves
    gradient[2:] -= 1
    factor, inverse = torch.cat([narrow, u]), (1 / free, -r / free)
    steep, bent = 2 * slope * factor, bend * moves
    second_order = {}
    for one, two in combinations_with_replacement(range(4), 2):
        bends = factor[two] * inverse[(one - two) % 2]
        if two >= 2 and (one - two) % 2 == 0:
            bends += v[one % 2]
        second_order[one, two] = bends.mul_(steep[one]).addcmul_(bent[one], moves[two])
    if correlation is not None:
        turn, other = -2 * v[0] * v[1] * free, v.flip(0) - r * v
        gradient = torch.cat([gradient, (slope * turn + r)[None]])
        for one in range(4):
            second_order[one, 4] = (steep[one] * other[one % 2]).addcmul_(bent[one], turn)
        second_order[4, 4] = bend * turn**2 + slope * 2 * free * (v**2).sum(0) + free
    return Derivatives(value, gradient, second_order)


def _share(natural: Tensor) -> Tensor:
    """The share of the lost, by its natural parameter."""
    return SMALLEST_SHARE + (1 - 2 * SMALLEST_SHARE) * torch.sigmoid(natural)


def _mixed(kept: Derivatives, lost: Derivatives, share: Tensor, count: int) -> Derivatives:
    """Each example along either line, as often as the share says; the lines have spread and correlation in common."""
    sigmoid, part = torch.sigmoid(share), _share(share)
    grows = (1 - 2 * SMALLEST_SHARE) * sigmoid * (1 - sigmoid)
    curves = grows * (1 - 2 * sigmoid)
    joint = torch.stack([torch.log(1 - part) + kept.value, torch.log(part) + lost.value])
    highest = torch.maximum(joint[0], joint[1])
    likely = torch.exp(joint - highest)
    belongs = likely / (likely[0] + likely[1])
    value = highest + torch.log(likely[0] + likely[1])
    last, flat = count - 1, {0: count - 3, 1: count - 2}
    places = [list(range(len(kept.gradient))), [flat.get(one, one) for one in range(len(kept.gradient))]]
    slopes = (-grows / (1 - part), grows / part)  # of the logarithms of both shares
    bends = (-curves / (1 - part) - slopes[0] ** 2, curves / part - slopes[1] ** 2)
    own = torch.zeros((2, count, *value.shape), dtype=value.dtype, device=value.device)
    for kind, (found, at) in enumerate(zip((kept, lost), places, strict=True)):
        own[kind, at] = found.gradient
        own[kind, last] = slopes[kind]
    gradient = (belongs[:, None] * own).sum(0)
    apart = own[1] - own[0]
    around = belongs[0] * belongs[1] * apart  # the spread of the two gradients around their mean
    second = {pair: around[pair[0]] * apart[pair[1]] for pair in combinations_with_replacement(range(count), 2)}
    for kind, (found, at) in enumerate(zip((kept, lost), places, strict=True)):
        for (one, two), bend in found.second.items():
            second[min(at[one], at[two]), max(at[one], at[two])].addcmul_(belongs[kind], bend)
        second[last, last].addcmul_(belongs[kind], bends[kind])
    return Derivatives(value, gradient, second)


def fit_accounts(logits: Logits, weights: Tensor) -> dict[Account, Fitted]:
    """Every account, fitted to the examples that `weights` [runs, folds, examples] count."""
    found: dict[Account, Fitted] = {}
    for tails, degrees in product(TAILS, (True, False)):
        one, two = (Account(kinds, degrees, tails) for kinds in (False, True))
        found[one] = _fit(one, logits, weights, start=_single(one, logits, weights), steps=STEPS)
        starts = _starts(found[one].parameters, logits, weights)
        if known := next((other for account, other in found.items() if account.two_kinds), None):
            starts = [_in_column(degrees, known.parameters), *starts[: int(degrees)]]
        found[two] = _fit(two, logits, weights, start=_best_start(two, logits, weights, starts), steps=STEPS)
    return found


def _best_start(account: Account, logits: Logits, weights: Tensor, starts: list[Tensor]) -> Tensor:
    """Of several starts, the one that is best after a few steps, for each problem."""
    if len(starts) == 1:
        return starts[0]
    tries = [_fit(account, logits, weights, start=start, steps=STARTING_STEPS) for start in starts]
    best = torch.stack([some.value for some in tries]).argmax(0)
    ends = torch.stack([some.parameters for some in tries])
    return ends.gather(0, best[None, ..., None].expand(1, *ends.shape[1:]))[0]


def _fit(account: Account, logits: Logits, weights: Tensor, start: Tensor, steps: int) -> Fitted:
    cut = logits.cut[:, :, None]

    def density(natural: Tensor, runs: Tensor) -> Derivatives:
        return log_density(account, natural, cut[runs])

    return Fitted(*maximise(density, design_of(account, logits), weights, start, steps))


def _single(account: Account, logits: Logits, weights: Tensor) -> Tensor:
    """Where the fit of one curve begins: least squares, and the spreads and correlation of what they leave."""
    curve = logits.curve  # [runs, prompts, examples, knots]
    held = torch.diag(torch.tensor([1e-6, 1e-6, *[1.0] * (len(KNOTS) - 2)], dtype=curve.dtype, device=curve.device))
    normal = torch.einsum("rpnk,rfn,rpnl->rpfkl", curve, weights, curve) + held
    along = torch.einsum("rpnk,rfn,rpn->rpfk", curve, weights, logits.cut)
    level = torch.linalg.solve(normal, along)
    left = logits.cut[:, :, None] - level @ curve.mT  # [runs, prompts, folds, examples]
    squares = (weights[:, None] * left**2).sum(-1).clamp(min=1e-9)
    spread = torch.log(squares / weights.sum(-1)[:, None]) / 2
    spreads = torch.nn.functional.pad(spread[..., None], (0, SPREAD - 1))  # the same everywhere
    parts = [level[:, 0], level[:, 1], spreads[:, 0], spreads[:, 1]]
    if account.degrees:
        shared = (weights * left.prod(1)).sum(-1) / squares.prod(1).sqrt()
        parts.append(torch.atanh(shared.clamp(-0.9, 0.9))[..., None])
    return torch.cat(parts, dim=-1)


def _alike(logits: Logits) -> Tensor:
    """Runs [runs] in which one curve leaves nothing: the knockout does the same to all, and no account gains."""
    everyone = torch.ones_like(logits.clean[:, :1])
    level = _single(Account(two_kinds=False, degrees=False, tails=TAILS[0]), logits, everyone)[:, 0]
    spreads = level[:, [2 * len(KNOTS), 2 * len(KNOTS) + SPREAD]]
    return (torch.exp(spreads) < ALIKE).any(-1)


def _starts(single: Tensor, logits: Logits, weights: Tensor) -> list[Tensor]:
    """Where the fit of two kinds begins: kept as it is or along the one curve; lost at the mean, below or above it."""
    middle = torch.einsum("rfn,rpn->rpf", weights, logits.cut) / weights.sum(-1)[:, None]
    knots, nothing = len(KNOTS), torch.zeros_like(middle[:, 0])
    diagonal = single.clone()
    for prompt in range(2):
        own = diagonal[..., prompt * knots : (prompt + 1) * knots]
        own.zero_()
        own[..., 0], own[..., 1] = middle[:, prompt], logits.diagonal[:, prompt, None]
    levels = [(diagonal, 0.0, 0.0), (single, -1.0, -1.0), (single, 1.0, -1.0)]
    return [
        torch.cat([kept, torch.stack([middle[:, 0] + away, middle[:, 1] + away, nothing + share], dim=-1)], dim=-1)
        for kept, away, share in levels
    ]


def _in_column(degrees: bool, parameters: Tensor) -> Tensor:
    """Parameters of two kinds for a column of the square: the correlation is left out, or begins at nothing."""
    shared, known, last = parameters.tensor_split([2 * (len(KNOTS) + SPREAD), parameters.shape[-1] - 3], dim=-1)
    if not degrees:
        known = known[..., :0]
    elif not known.shape[-1]:
        known = torch.zeros_like(last[..., :1])
    return torch.cat([shared, known, last], dim=-1)


@dataclass(frozen=True)
class Weighed:
    """What the accounts say of some runs: the log density of each example, held out, and all about the kinds.

    The kinds are those of the account at the lower right with Student's tails, fitted to all examples.
    """

    densities: dict[Account, Tensor]  # [runs, examples]
    lost: Tensor  # [runs, examples], the probability of lying along the flat line
    share: Tensor  # [runs], of those that do
    level: Tensor  # [runs, prompts], of the flat line
    at: Tensor  # [runs, prompts, points], clean logits at which the curves are given
    one: Tensor  # [runs, prompts, points], the one curve, of the account at the upper right
    kept: Tensor  # [runs, prompts, points]
    correlation: Tensor  # [runs], of what is left, in the account at the upper right


UPPER_RIGHT, LOWER_RIGHT = (Account(kinds, degrees=True, tails="student") for kinds in (False, True))
POINTS = 25  # at which a curve is given


def gains_of(weighed: Weighed) -> dict[str, Tensor]:
    """How much better one account predicts each example than another, [runs, examples], for every pair compared."""
    densities = weighed.densities
    gains = {
        f"{name}_{tails}": densities[Account(*better, tails)] - densities[Account(*worse, tails)]
        for name, (better, worse) in COMPARED.items()
        for tails in TAILS
    }
    return gains | {HEAVY: densities[UPPER_RIGHT] - densities[replace(UPPER_RIGHT, tails="normal")]}


def _of_everyone(account: Account, logits: Logits, found: Fitted) -> Tensor:
    """The natural parameters [parameters, runs, 1, examples] of a fit to all examples; it begins at the best fold's."""
    best = found.value.argmax(1)
    start = found.parameters[torch.arange(len(best), device=best.device), best][:, None]
    whole = _fit(account, logits, torch.ones_like(logits.clean[:, :1]), start=start, steps=STEPS)
    return design_of(account, logits).natural(whole.parameters)


def weigh(clean: Tensor, cut: Tensor, folds: Tensor) -> Weighed:
    """Fit all accounts to logits [runs, prompts, examples], without each of the folds [examples], and with all."""
    exact = standardise(clean, cut)
    logits = Logits(*(part.float() for part in vars(exact).values()))  # half the memory to go through
    test = torch.stack([folds == fold for fold in folds.unique()]).to(logits.cut)  # [folds, examples]
    fitted = fit_accounts(logits, (1 - test).expand(len(clean), *test.shape))
    known, told = logits.cut[:, :, None], (~_alike(logits))[:, None]
    densities = {}
    for account, found in fitted.items():
        natural = design_of(account, logits).natural(found.parameters)
        densities[account] = torch.where(told, (log_density(account, natural, known).value * test).sum(1), 0.0)
    single, whole = (_of_everyone(account, logits, fitted[account]) for account in (UPPER_RIGHT, LOWER_RIGHT))
    share = _share(whole[-1])
    along, flat = (_along(LOWER_RIGHT, middle, whole[2:4], whole[4], known) for middle in (whole[:2], whole[-3:-1]))
    lost = torch.sigmoid(torch.log(share) - torch.log1p(-share) + flat.value - along.value)[:, 0]
    wide = cut.std(-1, keepdim=True).clamp(min=1e-9)
    places = torch.linspace(0, clean.shape[-1] - 1, POINTS, device=clean.device).round().long()
    rank = clean.argsort(-1)[..., places]

    def curve(natural: Tensor) -> Tensor:
        middle = natural[:2, :, 0].movedim(0, 1)  # [runs, prompts, examples]
        return (middle * wide + cut.mean(-1, keepdim=True)).gather(-1, rank)

    return Weighed(
        densities,
        lost=lost,
        share=share[:, 0, 0],
        level=whole[-3:-1, :, 0, 0].T * wide[..., 0] + cut.mean(-1),
        at=clean.gather(-1, rank),
        one=curve(single),
        kept=curve(whole),
        correlation=torch.tanh(single[4, :, 0, 0]),
    )
