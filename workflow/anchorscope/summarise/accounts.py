"""Two kinds, or one: four accounts of what the knockout does to an example, and how well each predicts others.

Under each of two prompts an example has a clean logit x and a cut one y. An account is a density of both cut logits
given both clean ones:

| | what is left is independent | correlated: examples also differ by degrees |
|---|---|---|
| one curve | one mechanism | by degrees |
| two: one bends as it likes, one is flat | two kinds | two kinds, and degrees within them |

A curve is a natural spline of the clean logit, one for each prompt. What is left is normal or Student's t; in the right
column it is correlated between the prompts. Examples are of two parts, both with a spread of their own: the larger
part's may change with the clean logit's size and sign. In the upper row both parts lie around the one curve, in the
lower row the second lies around a flat line. So the lower row adds that line and nothing else: a tight and a wide
cloud around one curve are not two kinds. An example is of the same part under both prompts.

All layers, folds and draws are fitted together.
"""

import math
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product

import torch
from torch import Tensor

from anchorscope.summarise.likelihood import Derivatives, Design, maximise
from anchorscope.summarise.verdict_on_kinds import COMPARED, TAILS

KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)  # of a curve, quantiles of the clean logits
SPREAD = 3  # columns of a logarithm of the spread: the same everywhere, by size, by sign
# Among the natural parameters: of the first part its curves and spreads; of the second its levels and spreads.
CURVES, SPREADS, FLAT, OWN = slice(0, 2), slice(2, 4), slice(-5, -3), slice(-3, -1)
WIDEST = 3.0  # standard deviations of the clean logit beyond which the spread stays as it is
FREEDOM = 4  # degrees of freedom of Student's t
ALIKE = 1e-3  # of the cut logits' spread: one curve that leaves less leaves nothing
SMALLEST_SHARE = 0.01  # of examples of either part, so that neither can fade away
WIDER = 0.5  # the logarithm of the second part's spread in units of the first's, where the fit of one curve begins
STARTING_STEPS = 3  # of each start of a fit with two kinds; the best one goes on
STEPS = 50


@dataclass(frozen=True)
class Account:
    """One field of the square, with one kind of tails."""

    two_kinds: bool
    degrees: bool
    tails: str


Field = tuple[bool, bool]  # of the square: two kinds, degrees
FIELDS: list[Field] = [(kinds, degrees) for kinds in (False, True) for degrees in (False, True)]


@dataclass(frozen=True)
class PromptLogits:
    """Standardised logits of some runs (layers, draws), and what curves and spreads are made of."""

    clean: Tensor  # [runs, prompts, examples]
    cut: Tensor
    curve: Tensor  # [runs, prompts, examples, knots], the spline's columns
    diagonal: Tensor  # [runs, prompts], the slope at which a logit is kept as it is

    def of(self, runs: Tensor) -> "PromptLogits":
        return PromptLogits(*(part[runs] for part in vars(self).values()))


@dataclass(frozen=True)
class FittedAccount:
    """Parameters of an account, [runs, folds, parameters], and the log likelihood, [runs, folds]."""

    parameters: Tensor
    value: Tensor


def standardise(clean: Tensor, cut: Tensor) -> PromptLogits:
    """From logits [runs, prompts, examples]; a constant is added to every log density, the same for all accounts."""
    (clean, spread), (cut, wide) = (_scaled(values) for values in (clean, cut))
    return PromptLogits(clean, cut, _spline(clean), (spread / wide)[..., 0])


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


def design_of(account: Account, logits: PromptLogits) -> Design:
    """What each natural parameter is a linear function of, and which coefficients are held back a little.

    The natural parameters of an example are the two curves, the logarithms of the two spreads, the correlation (its
    Fisher transform), with two kinds the two flat levels, and of the second part the two spreads and its share.
    """
    within = logits.clean.clamp(-WIDEST, WIDEST)
    one = torch.ones_like(within[:, 0])[..., None]
    spread = torch.stack([torch.ones_like(within), within.abs(), within], dim=-1)
    # The columns of each parameter, and how many of them are not held back.
    parts = [(logits.curve[:, 0], 2), (logits.curve[:, 1], 2), (spread[:, 0], 1), (spread[:, 1], 1)]
    if account.degrees:
        parts.append((one, 0))
    if account.two_kinds:
        parts += [(one, 1)] * 2
    parts += [(one, 0)] * 3
    ridge = [float(number >= free) for part, free in parts for number in range(part.shape[-1])]
    return Design([part for part, _ in parts], one.new_tensor(ridge))


def log_density(account: Account, natural: Tensor, cut: Tensor) -> Derivatives:
    """Of cut logits [runs, prompts, 1, examples], with derivatives by the natural parameters [parameters, ...]."""
    return _mixed(account, _around(account, natural, cut), natural[-1])


DensityParts = tuple[
    Tensor, Tensor, dict[tuple[int, int], Tensor]
]  # a log density with its first and second derivatives


def _around(account: Account, natural: Tensor, cut: Tensor) -> DensityParts:
    """The log density around the middle of each part, [parts, ...], by its two middles, two spreads and correlation."""
    middle = torch.stack([natural[CURVES], natural[FLAT if account.two_kinds else CURVES]], dim=1)  # [prompts, parts]
    spread = torch.stack([natural[SPREADS], natural[OWN]], dim=1)
    correlation = natural[4] if account.degrees else None
    narrow = torch.exp(-spread)
    u = (cut.movedim(1, 0)[:, None] - middle) * narrow
    r = torch.tanh(correlation) if correlation is not None else torch.zeros_like(u[0, 0])
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
    return value, gradient, second_order


def _share(natural: Tensor) -> Tensor:
    """The share of the second part, by its natural parameter."""
    return SMALLEST_SHARE + (1 - 2 * SMALLEST_SHARE) * torch.sigmoid(natural)


def _mixed(account: Account, parts: DensityParts, share: Tensor) -> Derivatives:
    """Each example of either part, as often as the share says; the parts have their correlation in common."""
    density, gradients, seconds = parts
    sigmoid, part = torch.sigmoid(share), _share(share)
    grows = (1 - 2 * SMALLEST_SHARE) * sigmoid * (1 - sigmoid)
    curves = grows * (1 - 2 * sigmoid)
    joint = torch.stack([torch.log(1 - part), torch.log(part)]) + density
    value = torch.logaddexp(joint[0], joint[1])
    belongs = torch.exp(joint - value)
    here = list(range(len(gradients)))
    count = len(here) + 3 + 2 * account.two_kinds
    last = count - 1
    levels = [last - 4, last - 3] if account.two_kinds else [0, 1]
    places = [here, [*levels, last - 2, last - 1, *here[4:]]]
    slopes = torch.stack([-grows / (1 - part), grows / part])  # of the logarithms of both shares
    bends = torch.stack([-curves / (1 - part), curves / part]) - slopes**2
    own = torch.zeros((2, count, *value.shape), dtype=value.dtype, device=value.device)
    own[:, last] = slopes
    for kind, at in enumerate(places):
        own[kind, at] = gradients[:, kind]
    gradient = (belongs[:, None] * own).sum(0)
    square = (belongs[0] * belongs[1]).sqrt() * (own[1] - own[0])  # of the two gradients around their mean
    second = {(last, last): (belongs * bends).sum(0)}
    for (one, two), bend in seconds.items():
        for at, mine in zip(places, belongs * bend, strict=True):
            pair = min(at[one], at[two]), max(at[one], at[two])
            second[pair] = second[pair] + mine if pair in second else mine
    return Derivatives(value, gradient, second, square)


def fit_accounts(logits: PromptLogits, weights: Tensor) -> dict[Account, FittedAccount]:
    """Every account, fitted to the examples that `weights` [runs, folds, examples] count."""
    found: dict[Account, FittedAccount] = {}
    for kinds, tails, degrees in product((False, True), TAILS, (True, False)):
        account = Account(kinds, degrees, tails)
        if kinds:
            starts = _starts(found[replace(account, two_kinds=False)].parameters, logits, weights)
        else:
            starts = [_single(account, logits, weights)]
        if known := next((other for one, other in found.items() if one.two_kinds == kinds), None):
            starts = [_in_column(account, known.parameters), *starts[: int(kinds and degrees)]]
        found[account] = _fit(account, logits, weights, _best_start(account, logits, weights, starts), steps=STEPS)
    return found


def _best_start(account: Account, logits: PromptLogits, weights: Tensor, starts: list[Tensor]) -> Tensor:
    """Of several starts, the one that is best after a few steps, for each problem."""
    if len(starts) == 1:
        return starts[0]
    tries = [_fit(account, logits, weights, start=start, steps=STARTING_STEPS) for start in starts]
    best = torch.stack([some.value for some in tries]).argmax(0)
    ends = torch.stack([some.parameters for some in tries])
    return ends.gather(0, best[None, ..., None].expand(1, *ends.shape[1:]))[0]


def _fit(account: Account, logits: PromptLogits, weights: Tensor, start: Tensor, steps: int) -> FittedAccount:
    cut = logits.cut[:, :, None]

    def density(natural: Tensor, runs: Tensor) -> Derivatives:
        return log_density(account, natural, cut[runs])

    return FittedAccount(*maximise(density, design_of(account, logits), weights, start, steps))


def _single(account: Account, logits: PromptLogits, weights: Tensor) -> Tensor:
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
    parts += [(spread + WIDER).movedim(1, -1), torch.zeros_like(spread[:, 0, :, None])]
    return torch.cat(parts, dim=-1)


def _alike(logits: PromptLogits) -> Tensor:
    """Runs [runs] in which one curve leaves nothing: the knockout does the same to all, and no account gains."""
    everyone = torch.ones_like(logits.clean[:, :1])
    level = _single(Account(two_kinds=False, degrees=False, tails=TAILS[0]), logits, everyone)[:, 0]
    spreads = level[:, [2 * len(KNOTS), 2 * len(KNOTS) + SPREAD]]
    return (torch.exp(spreads) < ALIKE).any(-1)


def _starts(single: Tensor, logits: PromptLogits, weights: Tensor) -> list[Tensor]:
    """Where the fit of two kinds begins: kept as it is or along the one curve; lost at the mean, below or above it."""
    middle = torch.einsum("rfn,rpn->rpf", weights, logits.cut) / weights.sum(-1)[:, None]
    knots = len(KNOTS)
    diagonal = single.clone()
    for prompt in range(2):
        own = diagonal[..., prompt * knots : (prompt + 1) * knots]
        own.zero_()
        own[..., 0], own[..., 1] = middle[:, prompt], logits.diagonal[:, prompt, None]
    spread = single[..., [2 * knots, 2 * knots + SPREAD]]
    return [
        torch.cat([kept[..., :-3], (middle + away).movedim(1, -1), spread, torch.zeros_like(spread[..., :1])], dim=-1)
        for kept, away in ((diagonal, 0.0), (single, -1.0), (single, 1.0))
    ]


def _in_column(account: Account, parameters: Tensor) -> Tensor:
    """Parameters of the account with degrees of the same row, for another one of it: without them, no correlation."""
    before = 2 * (len(KNOTS) + SPREAD)
    return parameters if account.degrees else torch.cat([parameters[..., :before], parameters[..., before + 1 :]], -1)


@dataclass(frozen=True)
class Weighed:
    """What the accounts say of some runs: the log density of each example, held out, and all about the kinds.

    The kinds are those of the account at the lower right with Student's tails, fitted to all examples.
    """

    densities: Tensor  # [runs, fields, examples]
    lost: Tensor  # [runs, examples], the probability of lying along the flat line
    share: Tensor  # [runs], of those that do
    level: Tensor  # [runs, prompts], of the flat line
    at: Tensor  # [runs, prompts, points], clean logits at which the curves are given
    one: Tensor  # [runs, prompts, points], the one curve, of the account at the upper right
    kept: Tensor  # [runs, prompts, points]
    correlation: Tensor  # [runs], of what is left, in the account at the upper right


UPPER_RIGHT, LOWER_RIGHT = (Account(kinds, degrees=True, tails="student") for kinds in (False, True))
CURVE_POINTS = 25  # at which a curve is given


def gains_of(weighed: Weighed) -> dict[str, Tensor]:
    """How much better one account predicts each example than another, [runs, examples], for every pair compared."""
    said = dict(zip(FIELDS, weighed.densities.unbind(1), strict=True))
    return {name: said[better] - said[worse] for name, (better, worse) in COMPARED.items()}


def _held_out(
    field: Field, everyone: dict[Account, FittedAccount], logits: PromptLogits, test: Tensor
) -> tuple[Tensor, Tensor]:
    """What a field of the square says of each example, [runs, examples], and how well it fits without each fold.

    The tails are those that fit everyone better. A fit without a fold begins where the one with everyone ended; its
    worth, [runs, folds], is the log likelihood less the number of coefficients.
    """
    both = [Account(*field, tails) for tails in TAILS]
    best = torch.stack([everyone[one].value[:, 0] for one in both]).argmax(0)
    said, worth = torch.zeros_like(logits.cut[:, 0]), torch.zeros_like(logits.cut[:, 0, : len(test)]).double()
    for number, account in enumerate(both):
        runs = (best == number).nonzero()[:, 0]
        if len(runs):
            mine, start = logits.of(runs), everyone[account].parameters[runs].expand(-1, len(test), -1)
            found = _fit(account, mine, (1 - test).expand(len(runs), *test.shape), start, steps=STEPS)
            natural = design_of(account, mine).natural(found.parameters)
            said[runs] = (log_density(account, natural, mine.cut[:, :, None]).value * test).sum(1)
            worth[runs] = found.value - found.parameters.shape[-1]
    return said, worth


def _square(everyone: dict[Account, FittedAccount], logits: PromptLogits, test: Tensor) -> Tensor:
    """What every field says of each example, [runs, fields, examples], by the members of each fold, [folds, examples].

    The lower row holds the upper one: where a second line fits the other folds no better, there is none.
    """
    densities: dict[Field, Tensor] = {}
    told = (~_alike(logits))[:, None]
    for degrees in (False, True):
        (one, worth_one), (two, worth_two) = (
            _held_out((kinds, degrees), everyone, logits, test) for kinds in (False, True)
        )
        better = (worth_two > worth_one)[:, test.argmax(0)]
        densities[False, degrees] = torch.where(told, one, 0.0)
        densities[True, degrees] = torch.where(told, torch.where(better, two, one), 0.0)
    return torch.stack([densities[field] for field in FIELDS], dim=1)


def weigh(clean: Tensor, cut: Tensor, folds: Tensor) -> Weighed:
    """Fit all accounts to logits [runs, prompts, examples], to all and without each of the folds [examples]."""
    exact = standardise(clean, cut)
    logits = PromptLogits(*(part.float() for part in vars(exact).values()))  # half the memory to go through
    test = torch.stack([folds == fold for fold in folds.unique()]).to(logits.cut)  # [folds, examples]
    everyone = fit_accounts(logits, torch.ones_like(logits.clean[:, :1]))
    single, whole = (
        design_of(account, logits).natural(everyone[account].parameters) for account in (UPPER_RIGHT, LOWER_RIGHT)
    )
    share = _share(whole[-1])
    along, flat = _around(LOWER_RIGHT, whole, logits.cut[:, :, None])[0]
    lost = torch.sigmoid(torch.log(share) - torch.log1p(-share) + flat - along)[:, 0]
    wide = cut.std(-1, keepdim=True).clamp(min=1e-9)
    places = torch.linspace(0, clean.shape[-1] - 1, CURVE_POINTS, device=clean.device).round().long()
    rank = clean.argsort(-1)[..., places]

    def curve(natural: Tensor) -> Tensor:
        middle = natural[:2, :, 0].movedim(0, 1)  # [runs, prompts, examples]
        return (middle * wide + cut.mean(-1, keepdim=True)).gather(-1, rank)

    return Weighed(
        _square(everyone, logits, test),
        lost=lost,
        share=share[:, 0, 0],
        level=whole[FLAT, :, 0, 0].T * wide[..., 0] + cut.mean(-1),
        at=clean.gather(-1, rank),
        one=curve(single),
        kept=curve(whole),
        correlation=torch.tanh(single[4, :, 0, 0]),
    )
