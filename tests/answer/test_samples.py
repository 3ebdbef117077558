"""Samples are drawn with the model's own probabilities, by numbers of their own."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from anchorscope.engine import self_check
from anchorscope.engine.batches import plan_batches
from anchorscope.engine.continuing import PROMPT_TOKENS, SAMPLE_TOKENS, SLOTS_OF_TOKEN, Continuing
from anchorscope.engine.packs import Past, packed_attention
from anchorscope.engine.steps import GROWTH, Slots, Steps, room_for
from anchorscope.engine.work import Prompts, Said
from engines import continuations
from reference import plain_sample, plain_sureness
from rounding import assert_same, of_sureness
from small_things import tiny_model

PREFIX, VOCABULARY = 12, 300


def prompts(count: int) -> list[list[int]]:
    draw = np.random.default_rng(0)
    start = draw.integers(5, VOCABULARY, PREFIX).tolist()
    return [start + draw.integers(5, VOCABULARY, 4 + index % 3).tolist() for index in range(count)]


def stops(every: int) -> torch.Tensor:
    """So many tokens of the vocabulary stop an answer, so that samples end at different times."""
    return torch.arange(VOCABULARY) % every == 0


def uniforms(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).random(shape))


def drawn(model, asked, numbers, batch_tokens=None) -> list[list[Said]]:
    return continuations(model, asked, stops(every=9), numbers.shape[2], numbers, batch_tokens)


def test_the_first_token_is_drawn_with_the_probabilities_of_the_model():
    model, asked, count = tiny_model("llama", VOCABULARY, layers=2), prompts(1), 5000
    (said,) = drawn(model, asked, uniforms(1, count, 1))
    with torch.inference_mode():
        chances = model(input_ids=torch.tensor(asked)).logits[0, -1].double().softmax(-1).numpy()
    found = np.bincount([one.ids[0] for one in said], minlength=VOCABULARY)
    common = count * chances >= 5
    expected = count * np.append(chances[common], chances[~common].sum())
    found = np.append(found[common], found[~common].sum())
    assert common.sum() > 20, "too few tokens to compare"
    assert ((found - expected) ** 2 / expected).sum() < chi2.ppf(0.999, common.sum())


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])
def test_samples_are_those_of_recomputing_the_whole_text_for_each_token(family):
    """Some outgrow the slots that they begin in."""
    model, asked, numbers = tiny_model(family, VOCABULARY), prompts(4), uniforms(4, 3, 20)
    said = drawn(model, asked, numbers, batch_tokens=120)
    assert max(len(one.ids) for mine in said for one in mine) > 2 * GROWTH
    rounding = of_sureness(model, max(map(len, asked)) + 20)
    for prompt, mine, own in zip(asked, said, numbers.tolist(), strict=True):
        assert [one.ids for one in mine] == [plain_sample(model, prompt, row, stops(every=9)) for row in own]
        for one in mine:
            sure = plain_sureness(model, prompt, one.ids)
            assert_same([one.logprobs, one.entropies], sure, rounding)
    assert len({len(one.ids) for mine in said for one in mine}) > 2, "all samples stop together"


def test_looking_at_tokens_only_when_the_next_are_under_way_changes_no_answer():
    """As where there is a GPU: steps go on with answers that have ended, and one step may be for nothing."""
    model, asked, numbers = tiny_model("llama", VOCABULARY), prompts(4), uniforms(4, 3, 20)
    expected = drawn(model, asked, numbers)
    with packed_attention(model), torch.inference_mode():
        continuing = Continuing(model, model.lm_head, Prompts(asked, stops(every=9), 20, numbers))
        continuing.ahead = True
        found = continuing.run([0, 1, 2, 3])
    assert len({len(one.ids) for mine in found for one in mine}) > 2, "all samples stop together"
    rounding = of_sureness(model, max(map(len, asked)) + 20)
    for mine, others in zip(found, expected, strict=True):
        for one, other in zip(mine, others, strict=True):
            assert one.ids == other.ids
            assert_same([one.logprobs, one.entropies], [other.logprobs, other.entropies], rounding)


def test_both_paths_draw_the_same(monkeypatch):
    model, asked, numbers = tiny_model("qwen3", VOCABULARY), prompts(5), uniforms(5, 3, 6)
    packed = drawn(model, asked, numbers)
    monkeypatch.setattr(self_check._Trial, "packed_fault", lambda trial: "a test wants it so")
    plain = drawn(model, asked, numbers)
    assert [[one.ids for one in mine] for mine in plain] == [[one.ids for one in mine] for mine in packed]


def test_the_samples_of_an_example_do_not_depend_on_others_nor_on_how_many_there_are():
    model, asked, numbers = tiny_model("llama", VOCABULARY), prompts(6), uniforms(6, 4, 6)
    ids = [[one.ids for one in mine] for mine in drawn(model, asked, numbers)]
    assert len({tuple(one) for mine in ids for one in mine}) > 12, "the samples are all alike"
    (alone,) = drawn(model, asked[2:3], numbers[2:3])
    assert [one.ids for one in alone] == ids[2]
    fewer = drawn(model, asked, numbers[:, :2], batch_tokens=64)
    assert [[one.ids for one in mine] for mine in fewer] == [mine[:2] for mine in ids]


@pytest.mark.parametrize(("copies", "planned"), [(1, 200), (10, 500)])
def test_long_questions_share_a_batch_with_fewer_others_where_each_has_many_samples(copies, planned):
    """Each sample has slots for all of its question."""
    model, asked = tiny_model("llama", VOCABULARY, layers=1), prompts(2)
    draw = np.random.default_rng(2)
    asked += [asked[0][:PREFIX] + draw.integers(5, VOCABULARY, 200).tolist() for _ in range(2)]
    work = Prompts(asked, stops(every=9), max_new_tokens=4, uniforms=uniforms(len(asked), copies, 4))
    with packed_attention(model), torch.inference_mode():
        sizes = Continuing(model, lambda states: states, work).sizes(batch_tokens=10**4)
    assert sizes == [max(PROMPT_TOKENS, copies * SAMPLE_TOKENS)] * 2 + [planned] * 2
    assert planned == max(200, copies * 200 // SLOTS_OF_TOKEN)


@pytest.mark.parametrize("copies", [1, 3])
@torch.inference_mode()
def test_the_slots_of_a_planned_batch_fit_into_their_share_of_the_memory(copies):
    """As on a GPU that is nearly full of weights; nothing is computed here."""
    model, budget = tiny_model("llama", VOCABULARY, layers=2), 10**4
    asked = prompts(40)
    work = Prompts(asked, stops(every=9), max_new_tokens=4, uniforms=uniforms(len(asked), copies, 4))
    with packed_attention(model):
        continuing = Continuing(model, lambda states: states, work)
        free = plan_batches(continuing.sizes(budget), budget)
        continuing.steps.most = 2**17
        plan = plan_batches(continuing.sizes(budget), budget)
        assert len(free) == 1 < len(plan) < len(asked)
    shared = {
        layer: (keys.transpose(0, 1).float(), values.transpose(0, 1))
        for layer, (keys, values) in continuing.openings.past.pools.items()
    }
    for batch in plan:
        longest = max(len(asked[index]) for index in batch) - len(continuing.openings.prefix)
        assert Slots(shared, len(batch) * copies, room_for(longest)).size <= continuing.steps.most


@torch.inference_mode()
def test_the_slots_that_are_kept_for_other_batches_are_bounded():
    """As where there is a GPU; nothing is computed here."""
    steps = Steps(tiny_model("llama", VOCABULARY, layers=1), lambda states: states, draws=False)
    past = Past({0: (torch.randn(PREFIX + 2, 2, 8), torch.randn(PREFIX + 2, 2, 8))})
    steps.graphs = True

    def begin(rows: int) -> int:
        places, lengths = np.full((rows, 2), PREFIX), np.full(rows, 2)
        steps.begin(past, PREFIX, places, lengths, torch.zeros(rows, dtype=torch.int64))
        return steps.step.slots.size

    steps.most = 3 * begin(8)
    first = steps.step
    for rows in (16, 8, 24):
        begin(rows)
    assert [rows for rows, _ in steps.kept] == [16, 8, 24], "the last one last"
    assert steps.kept[8, first.slots.room] is first
    begin(32)
    assert [rows for rows, _ in steps.kept] == [24, 32], "those that were not used for the longest time are gone"
