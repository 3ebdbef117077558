"""Small random models of every architecture in transformers' list of causal language models, and what is right there.

`python tests/helpers/architectures.py` writes docs/architectures.md and docs/architectures.csv; `make architectures`
calls it.
"""

import csv
import io
import sys
from dataclasses import dataclass
from functools import cache
from logging import getLogger
from pathlib import Path

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from anchorscope.engine.attention_mask import own_attention
from anchorscope.engine.door import Engine
from anchorscope.engine.parts import MODULES
from anchorscope.engine.work import Variant, Work
from engines import collected, greedy
from reference import plain_greedy
from rounding import of_a_pass
from small_things import ROOT

LAYERS, VOCABULARY, WIDTH = 4, 500, 32
WINDOW = 2
LARGEST = 3_000_000  # parameters: a default that was not made small is found before any memory is taken
# Whatever of this a config knows is set.
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "d_model": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,
    "init_std": 0.25,
    "is_decoder": True,
    "pad_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "sliding_window": 24,
    # other names for the same
    "ffn_dim": 48,
    "ffn_hidden_size": 48,
    "dim_ff": 48,
    "dim_head": 8,
    "dff": 48,
    "decoder_ffn_dim": 48,
    "decoder_layers": LAYERS,
    "decoder_attention_heads": 4,
    "encoder_layers": 2,
    "encoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "rotary_dim": 4,
    # experts
    "moe_intermediate_size": 16,
    "dense_intermediate_size": 48,
    "intermediate_size_mlp": 48,
    "shared_expert_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "expert_ffn_hidden_size": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    # latent and indexed attention
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "o_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "qk_head_dim": 12,
    "index_n_heads": 4,
    "index_head_dim": 8,
    # recurrent layers
    "mamba_d_state": 8,
    "mamba_d_head": 8,
    "mamba_n_heads": 8,
    "mamba_n_groups": 1,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "mamba_chunk_size": 16,
    "ssm_state_size": 8,
    "state_size": 8,
    "chunk_size": 16,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_head_dim": 8,
    "lru_width": WIDTH,
    # inputs to each layer, and embeddings of other widths
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "global_head_dim": 8,
    "num_global_key_value_heads": 2,
    "swa_num_attention_heads": 4,
    "swa_head_dim": 8,
    "rel_extent": 16,
    "input_embedding_size": 16,
    "output_embedding_size": WIDTH,
    "pronunciation_embed_dim": 8,
    "pronunciation_vocab_size": 20,
    "shape_embed_dim": 8,
    "shape_vocab_size": 20,
}
LATENT = {"num_key_value_heads": 4, "head_dim": 4}
HALF_ATTENTION = ["full_attention" if layer % 2 else "linear_attention" for layer in range(LAYERS)]
# What an architecture needs beyond that, in the words of its own config. None takes a setting away.
OWN: dict[str, dict] = {
    "axk1": LATENT,
    "axk2": LATENT,
    "bailing_hybrid": LATENT | {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1, 3]},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "codegen": {"rotary_dim": 4, "n_ctx": 512},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2},
        "num_key_value_heads": None,
    },
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "deepseek_v32": LATENT,
    "dots1": {"n_shared_experts": 1},
    "falcon": {"head_dim": None, "new_decoder_architecture": False},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_expand": 2},
    "gemma3n": {"num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "gemma3n_text": {"num_kv_shared_layers": 2, "layer_types": ["sliding_attention", "full_attention"] * 2},
    "glm4_moe_lite": LATENT,
    "glm_moe_dsa": LATENT,
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 24},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "inkling_text": {"swa_num_key_value_heads": 2},
    "kimi_linear": LATENT | {"layer_types": HALF_ATTENTION, "linear_num_heads": 4},
    "lfm2": {"full_attn_idxs": [1, 3], "layer_types": None, "block_auto_adjust_ff_dim": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "longcat_flash": LATENT,
    "minicpm3": LATENT,
    "minimax": {"layer_types": HALF_ATTENTION},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "mlp", "attention"]},
    "olmo_hybrid": {"layer_types": HALF_ATTENTION},
    "qwen3_5": {"layer_types": HALF_ATTENTION},
    "qwen3_5_moe": {"layer_types": HALF_ATTENTION},
    "qwen3_next": {"layer_types": HALF_ATTENTION},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 24},
    "xlnet": {"max_position_embeddings": None},
    "xlstm": {"v_head_dim": None},
    "xmod": {"default_language": "en_XX"},
    "youtu": LATENT,
    "zamba2": {"layer_types": None},
    "zaya": {"num_experts_per_tok": 1},
}


def architectures() -> list[str]:
    """Every model type in transformers' list of causal language models."""
    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def small_config(kind: str) -> PreTrainedConfig:
    """The default config of a kind, with all numbers made small that are known here."""
    default = CONFIG_MAPPING[kind]().get_text_config()
    known = {*default.to_dict(), *default.attribute_map}
    given = {name: SMALL[name] for name in SMALL if name in known} | OWN.get(kind, {})
    return type(default)(**{name: value for name, value in given.items() if value is not None or name == "layer_types"})


def small_model(kind: str) -> PreTrainedModel:
    """A random float32 model, with weights large enough that attention is far from uniform."""
    config = small_config(kind)
    with torch.device("meta"):
        size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if size > LARGEST:
        raise ValueError(f"{kind} has {size} parameters")
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).float().eval().requires_grad_(False)


VISION = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
    "depth": 1,
    "num_heads": 4,
    "out_hidden_size": WIDTH,
    "vision_output_dim": WIDTH,
    "projector_input_dim": WIDTH,
    "projector_output_dim": WIDTH,
    "fullatt_block_indexes": [0],
}
IMAGE_MODELS = ("gemma3", "qwen2_5_vl", "llama4", "mistral3")


def small_image_model(kind: str, vocabulary: int = VOCABULARY) -> PreTrainedModel:
    """A whole model that also takes images, with a text model as small as the others."""
    default = CONFIG_MAPPING[kind]()
    text = small_config(default.get_text_config().model_type).to_dict() | {"vocab_size": vocabulary}
    if kind.startswith("qwen"):
        text["rope_parameters"] = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    seen = type(default.vision_config)
    known = {name: value for name, value in VISION.items() if name in seen().to_dict()}
    config = type(default)(text_config=text, vision_config=seen(**known).to_dict())
    torch.manual_seed(0)
    return AutoModelForImageTextToText.from_config(config).float().eval().requires_grad_(False)


@torch.inference_mode()
def masked_states(
    model: PreTrainedModel, ids: list[int], cut: list[int], keep: list[int], layer: int, window: int | None = None
) -> Tensor:
    """The block's output [positions, width] at `layer`, knocked out in layers 0 ... `layer`, or the last `window`.

    One example, one pass, no cache, no padding, eager attention: the model makes its own mask, and where a block is
    given one, the cut scores in it are set to the smallest number.
    """
    decoder = model.get_decoder()
    decoder = decoder if isinstance(decoder, PreTrainedModel) else model.base_model
    blocks = next(part for part in decoder.modules() if isinstance(part, nn.ModuleList) and len(part) == LAYERS)
    found: list[Tensor] = []

    def masked(value: object) -> object:
        if not isinstance(value, Tensor) or value.dim() != 4 or value.shape[-1] != len(ids):
            return value
        value = value.expand(-1, -1, len(ids), -1)  # where it is the same for all queries
        # A token always sees itself: a mask of truth values says by its first one what it means.
        hidden = ~value[..., 0, 0] if value.dtype == torch.bool else torch.finfo(value.dtype).min
        value = value.clone()
        for key in cut:
            for query in range(key + 1, len(ids)):
                if query not in cut:
                    value[..., query, key] = hidden
        return value

    def cutting(module, args, kwargs):
        return tuple(map(masked, args)), {name: masked(value) for name, value in kwargs.items()}

    def keeping(module, args, output):
        states = output[0] if isinstance(output, tuple | list) else output
        if states.dim() == 4:  # the active one of several streams that come first; the mean of those that come last
            states = states[0] if hasattr(model.config.get_text_config(), "altup_active_idx") else states.mean(dim=2)
        found.append(states[0, keep].clone())

    first = 0 if window is None else max(0, layer - window + 1)
    handles = [block.register_forward_pre_hook(cutting, with_kwargs=True) for block in blocks[first : layer + 1]]
    handles.append(blocks[layer].register_forward_hook(keeping))
    decoder(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long), use_cache=False)
    for handle in handles:
        handle.remove()
    return found[0]


@dataclass(frozen=True)
class Found:
    """How a model is run, and how far that is from the slow reference."""

    path: str  # packed, or plain with the attention that is run
    without_attention: int  # layers
    components: str
    clean: float  # largest difference, in units of the largest number where that is above one
    knockout: float
    window: float
    generation: bool

    @property
    def exact(self) -> bool:
        return max(self.clean, self.knockout, self.window) < exact_to() and self.generation


def sequences() -> list[list[Variant]]:
    """Two examples after a common beginning, each clean and with a cut; the longer one exceeds a sliding window."""
    draw = np.random.default_rng(0)
    start = draw.integers(5, VOCABULARY, 10)
    found = []
    for length in (14, 19):
        ids = np.concatenate([start, draw.integers(5, VOCABULARY, length)])
        found.append([Variant(ids, read=[len(ids) - 3, len(ids) - 1], cut=cut) for cut in ([], [12, 14, 15])])
    return found


@cache
def exact_to() -> float:
    """How far rounding may move a pass of a plain model of this size, in units of the largest number."""
    return of_a_pass(small_model("llama"), max(len(item[0].ids) for item in sequences()), torch.ones(1))


def work(window: int | None = None) -> Work:
    return Work([[some] for some in sequences()], ["resid"], range(LAYERS), window)


def measured(engine: Engine, window: int | None = None) -> Tensor:
    """[passes, examples, layers, positions, width] of the block outputs, as extraction computes them."""
    found = collected(engine, work(window))[0].unflatten(1, (2, 2, 2))  # [layers, passes, positions, examples, width]
    return found.permute(1, 3, 0, 2, 4)


def expected(model: PreTrainedModel, window: int | None = None) -> Tensor:
    """The same the slow way."""
    return torch.stack(
        [
            torch.stack(
                [
                    torch.stack(
                        [
                            masked_states(
                                model, one.ids.tolist(), cut=one.cut, keep=one.read, layer=layer, window=window
                            )
                            for layer in range(LAYERS)
                        ]
                    )
                    for one in (item[number] for item in sequences())
                ]
            )
            for number in range(2)
        ]
    )


def same_answers(model: PreTrainedModel) -> bool:
    """Whether the engine says what the model says token by token."""
    prompts = [item[0].ids.tolist() for item in sequences()]
    stops = torch.zeros(model.config.get_text_config().vocab_size, dtype=torch.bool)
    stops[::7] = True
    said = greedy(model, prompts, stops, 6)
    return [one.ids for one in said] == [plain_greedy(model, prompt, stops, limit=6) for prompt in prompts]


def compare(model: PreTrainedModel) -> Found:
    """Run a small model on its path and the slow way."""
    engine, differences = Engine(model), []
    path = engine.prepare(work())
    for window in (None, WINDOW):
        mine = measured(engine, window)
        with own_attention(model, "eager"):
            slow = expected(model, window)
        differences.append((mine - slow).abs().amax(dim=(1, 2, 3, 4)) / slow.abs().amax().clamp(min=1))
    (clean, knockout), (_, windowed) = (some.tolist() for some in differences)
    lacking = [name for name in ("attn", "mlp") if any(MODULES[name](block) is None for block in path.parts.blocks)]
    return Found(
        path=path.name if path.name == "packed" else f"plain, {path.attention}",
        without_attention=len(path.parts.without_attention),
        components=", ".join(name for name in ("resid", "attn", "mlp") if name not in lacking),
        clean=clean,
        knockout=knockout,
        window=windowed,
        generation=same_answers(model),
    )


@dataclass(frozen=True)
class Verdict:
    """What became of an architecture: measured, refused in a sentence, or not even built small."""

    kind: str
    found: Found | None = None
    refused: str = ""
    not_built: str = ""


def judge(kind: str) -> Verdict:
    """Build a small model of a kind and compare it."""
    try:
        model = small_model(kind)
        model(input_ids=torch.arange(3, 9)[None])
    except Exception as error:  # whatever its code says to a config made small without knowledge of it
        return Verdict(kind, not_built=f"{type(error).__name__}: {' '.join(str(error).split())[:100]}")
    try:
        return Verdict(kind, found=compare(model))
    except ValueError as error:
        return Verdict(kind, refused=str(error))


COLUMNS = ("architecture", "path", "without", "components", "clean", "knockout", "window", "answers", "why")
REFUSED, NOT_TRIED = "refused", "not tried"  # in place of a path


def row(verdict: Verdict) -> list[str]:
    """A line of docs/architectures.csv."""
    found = verdict.found
    if not found:
        return [verdict.kind, REFUSED if verdict.refused else NOT_TRIED, *[""] * 6, verdict.refused]
    differences = [f"{value:.0e}" for value in (found.clean, found.knockout, found.window)]
    without, answers = str(found.without_attention or ""), "equal" if found.generation else "differs"
    return [verdict.kind, found.path, without, found.components, *differences, answers, ""]


def table(verdicts: list[Verdict]) -> str:
    """docs/architectures.csv."""
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([COLUMNS, *map(row, verdicts)])
    return lines.getvalue()


def reason(verdict: Verdict) -> str:
    """Why an architecture is refused, without its name."""
    return verdict.refused.removeprefix(f"This {verdict.kind} model cannot be measured: ")


def page(verdicts: list[Verdict]) -> str:
    """docs/architectures.md."""
    measured = [verdict for verdict in verdicts if verdict.found]
    refused = [verdict for verdict in verdicts if verdict.refused]
    exact = [verdict for verdict in measured if verdict.found.exact]
    packed = [verdict for verdict in exact if verdict.found.path == "packed"]
    wrong = sorted({verdict.kind for verdict in measured} - {verdict.kind for verdict in exact})
    reasons = {why: [one.kind for one in refused if reason(one) == why] for why in map(reason, refused)}
    template = Path(__file__).with_suffix(".md").read_text(encoding="utf-8")
    return template.format(
        listed=len(verdicts),
        built=len(measured) + len(refused),
        exact=len(exact),
        exact_to=exact_to(),
        packed=len(packed),
        plain=len(exact) - len(packed),
        wrong=f" Not so: {', '.join(wrong)}." if wrong else "",
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        refused="\n".join(f"- {', '.join(kinds)}: {why}" for why, kinds in reasons.items()),
        left=", ".join(verdict.kind for verdict in verdicts if verdict.not_built),
    )


def main() -> None:
    logging.set_verbosity(logging.CRITICAL)
    getLogger("anchorscope").setLevel("ERROR")
    verdicts = []
    for kind in architectures():
        verdicts.append(judge(kind))
        print(verdicts[-1], file=sys.stderr, flush=True)
    whole = [Verdict(f"{kind}, whole", compare(small_image_model(kind))) for kind in IMAGE_MODELS]
    (ROOT / "docs/architectures.md").write_text(page(verdicts), encoding="utf-8")
    (ROOT / "docs/architectures.csv").write_text(table(verdicts + whole), encoding="utf-8")


if __name__ == "__main__":
    main()
