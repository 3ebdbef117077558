"""The trial of the packed path: errors are found whatever the dtype and the weights, and rounding is none."""

from itertools import product

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.parts import find_parts
from anchorscope.engine.same_states import Watched, noise_like, watching
from anchorscope.engine.self_check import _Trial, choose_path
from architectures import VOCABULARY, small_model
from planted_errors import ERRORS, plant_outliers, with_biases

TOKENS, SHARED = 46, 20
IDS = np.random.default_rng(0).integers(5, VOCABULARY - 5, TOKENS)
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# A bias in attention, a window, positions that are learnt, experts, keys shared between layers and several streams.
FAMILIES = ["qwen2", "mistral", "gpt2", "mixtral", "gemma3n_text"]
LACKS = {"a bias left out": {"mistral", "mixtral", "gemma3n_text"}, "a window ignored": {"qwen2", "gpt2", "mixtral"}}


def trial_of(family: str, dtype: torch.dtype, *, outliers: bool) -> _Trial:
    model = small_model(family)
    with_biases(model, find_parts(model))
    if outliers:
        plant_outliers(model)
    model = model.to(dtype)
    return _Trial(model, find_parts(model), IDS, SHARED)


IN_EVERY_RUN = [(torch.float32, False), (torch.bfloat16, True)]
OTHERS = [both for both in product(DTYPES, (False, True)) if both not in IN_EVERY_RUN]


@pytest.mark.parametrize(
    ("dtype", "outliers"), [*IN_EVERY_RUN, *(pytest.param(*both, marks=pytest.mark.slow) for both in OTHERS)], ids=str
)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_error_is_found_and_a_sound_model_is_packed(family, dtype, outliers):
    trial = trial_of(family, dtype, outliers=outliers)
    with torch.inference_mode(), own_attention(trial.model, "sdpa"):
        trial._run_plain()
        assert trial.packed_fault() is None
        for name, error in ERRORS.items():
            if family not in LACKS.get(name, ()):
                with error(trial):
                    assert trial.packed_fault() is not None, name
        assert trial.packed_fault() is None, "the errors are gone again"


@pytest.mark.parametrize("dtype", [DTYPES[0], pytest.param(DTYPES[1], marks=pytest.mark.slow)], ids=str)
def test_errors_are_found_in_a_model_of_many_layers(dtype):
    """What is not to be seen must not grow from layer to layer, until nothing is a number and nothing is compared."""
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 64, "num_attention_heads": 4}
    shape |= {"vocab_size": 99, "initializer_range": 0.3}  # attention that is not spread evenly
    model = AutoModelForCausalLM.from_config(LlamaConfig(**shape), dtype=dtype).eval()
    trial = _Trial(model, find_parts(model), IDS % 90, SHARED)
    with torch.inference_mode(), own_attention(model, "sdpa"):
        trial._run_plain()
        assert 0 < trial.rounding < 1, "and a number"
        assert trial.packed_fault() is None
        for name in ("a wrong scale", "a cut token that is still seen"):
            with ERRORS[name](trial):
                assert trial.packed_fault() is not None, name


def test_noise_is_large_and_a_number_also_among_the_largest_numbers_of_half_precision():
    states = torch.randn(20, 64, generator=torch.Generator().manual_seed(1)).half()
    outliers = states.clone()
    outliers[3] = 48_000  # of at most 65,504
    for others in (states, outliers):
        noise = noise_like(states, others)
        assert noise.isfinite().all()
        assert noise.float().norm() > 2 * others.float().norm()
        assert noise.abs().max() <= max(others.abs().max(), 65_504 / 64)


def test_a_code_that_leaves_out_the_cap_on_scores_is_not_taken():
    """Older versions of transformers run Gemma 2 by it without a word, as if there were no cap."""
    model = small_model("gemma2")
    assert model.config.attn_logit_softcapping
    with pytest.raises(ValueError, match="cap on scores"), own_attention(model, "sdpa"):
        pass
    assert choose_path(model, IDS.tolist(), SHARED).attention == "eager"


def test_what_is_no_number_is_a_fault_unless_the_model_itself_gives_none():
    trial = trial_of("qwen2", torch.float32, outliers=False)
    with torch.inference_mode(), own_attention(trial.model, "sdpa"):
        trial._run_plain()
        trial.expected = [torch.full_like(attended, torch.nan) for attended in trial.expected]
        assert "differs by nan" in trial.packed_fault()
        find_parts(trial.model).blocks[-1].module.mlp.down_proj.weight.data[0, 0] = torch.inf
        trial._run_plain()
        assert trial.packed_fault() is None


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_float32_beside_half_precision_is_the_model_in_float32(dtype):
    """What is followed from end to end equals a float32 model with the same weights."""
    half = small_model("qwen2").to(dtype)
    whole = small_model("qwen2").to(dtype).float()
    tokens = torch.from_numpy(IDS)[None]
    exact = Watched()
    with torch.inference_mode():
        with watching(find_parts(half), range(TOKENS), exact=exact):
            half(input_ids=tokens, use_cache=False)
        with watching(find_parts(whole), range(TOKENS)) as expected:
            whole.model(inputs_embeds=half.get_input_embeddings()(tokens).float(), use_cache=False)
    for found, states in zip(exact.states, expected.states, strict=True):
        # The position's sine and cosine are rounded to the half precision before its blocks get them.
        torch.testing.assert_close(found, states, rtol=0, atol=20 * torch.finfo(dtype).eps * float(states.abs().mean()))


def test_a_float32_copy_of_a_block_copies_no_other_block(monkeypatch):
    """What hooks hold would be copied, too: so a model of many layers was copied once for each of them."""
    model = small_model("llama").bfloat16()
    parts, copied = find_parts(model), []
    plain = torch.nn.Parameter.__deepcopy__
    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", lambda one, memo: copied.append(one) or plain(one, memo))
    ids, exact = torch.arange(1, 9)[None], Watched()
    with watching(parts, range(8), exact=exact):
        model(ids)
    of_blocks = [weight for block in parts.blocks for weight in block.module.parameters()]
    assert len(exact.states) == len(parts.blocks)
    assert sorted(map(id, copied)) == sorted(map(id, of_blocks))


def test_a_path_says_how_far_rounding_moves_states():
    fine, coarse = (choose_path(small_model("llama").to(dtype), IDS.tolist(), SHARED) for dtype in DTYPES[:2])
    assert fine.moved is None
    assert 1e-3 < coarse.moved < 0.05
    assert coarse.as_json()["dtype"] == "bfloat16"
    assert coarse.same(torch.ones(4, 8), torch.ones(4, 8) * 1.05)
    assert not fine.same(torch.ones(4, 8), torch.ones(4, 8) * 1.05)
