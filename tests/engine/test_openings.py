"""Openings are found among sequences as counting finds them, and each sequence knows the longest that it has."""

from collections import Counter

import numpy as np
import pytest
import torch

from anchorscope.engine.packs import SHARERS, Openings, find_openings, packed_attention
from rounding import assert_same, of_a_pass
from small_things import tiny_model


def drawn(seed: int, count: int = 40) -> list[tuple[int, ...]]:
    """Sequences of few different tokens, so that many begin alike; some are empty, and some are the same."""
    draw = np.random.default_rng(seed)
    return [tuple(draw.integers(0, 3, draw.integers(0, 9)).tolist()) for _ in range(count)]


def counted(sequences: list[tuple[int, ...]], sharers: int) -> set[tuple[int, ...]]:
    """The same by counting every beginning of every sequence."""
    begun = Counter(ids[:end] for ids in sequences for end in range(1, len(ids) + 1))
    shared = [[ids[:end] for end in range(1, len(ids) + 1) if begun[ids[:end]] >= sharers] for ids in sequences]
    return {beginnings[-1] for beginnings in shared if beginnings}


@pytest.mark.parametrize("count", [0, 1, SHARERS - 1, SHARERS, 40])
@pytest.mark.parametrize("seed", range(5))
def test_openings_are_the_longest_beginnings_that_enough_sequences_have(seed, count):
    sequences = drawn(seed, count)
    assert set(find_openings(sequences, most=10**6)) == counted(sequences, SHARERS)


@pytest.mark.parametrize("seed", range(5))
def test_openings_that_would_be_too_many_tokens_are_those_of_more_sequences(seed):
    sequences = drawn(seed)
    sizes = [sum(map(len, counted(sequences, SHARERS * times))) for times in (1, 2)]
    assert sizes[0] > sizes[1]
    assert set(find_openings(sequences, most=sizes[0] - 1)) == counted(sequences, 2 * SHARERS)
    assert find_openings(sequences, most=0) == []


@torch.inference_mode()
def test_the_pool_holds_an_opening_where_a_sequence_is_told_that_it_is():
    model = tiny_model("llama", 50)
    begun = [[1, 2, 3, *ids] for ids in ([7, 8, 9], [7, 8, 4], [7, 8, 9, 5], [7, 5], [7, 8], [6], [])]
    with packed_attention(model):
        openings = Openings(model, begun)
        assert [len(places) for places in openings.known] == [5, 5, 5, 4, 5, 3, 3]
        for ids, places in zip(begun, openings.known, strict=True):
            alone = Openings(model, [ids[: len(places)]]).past
            for layer, pools in alone.pools.items():
                for found, states in zip(openings.past.pools[layer], pools, strict=True):
                    assert_same(found[places], states, of_a_pass(model, len(ids), states))
