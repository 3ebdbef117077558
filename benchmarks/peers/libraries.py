"""How each library reads the states of a batch: the block outputs at some places, after a prefix that it computed once.

Each gets what its documentation offers: a batch in one pass, a 4-D mask, a cache of keys and values for what all
sequences begin with, and only the vectors that are wanted saved. None computes gradients or more than one logit.
"""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Protocol

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Batch:
    """Padded sequences without the prefix that they share."""

    ids: Tensor  # [sequences, tokens]
    mask: Tensor  # boolean [sequences, 1, tokens, prefix + tokens]
    places: Tensor  # [sequences, positions], indices into the tokens

    @property
    def rows(self) -> Tensor:
        """Of each place its sequence, [sequences, 1]."""
        return torch.arange(len(self.ids), device=self.ids.device)[:, None]

    def inputs(self, cache: Cache | None) -> dict:
        """What transformers' own models take."""
        return {"attention_mask": self.mask, "past_key_values": cache, "use_cache": cache is not None}


class Library(Protocol):
    """A model in the hands of a library."""

    def prefix(self, ids: Tensor) -> Cache:
        """Keys and values of a prefix [1, tokens]."""
        ...

    def states(self, batch: Batch, cache: Cache | None) -> Tensor:
        """Outputs of all blocks, [layers, sequences, positions, width]."""
        ...


class Transformers:
    """Forward hooks on the decoder's layers."""

    package = "transformers"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None):
        self.decoder = model.get_decoder()

    def prefix(self, ids: Tensor) -> Cache:
        return self.decoder(input_ids=ids, use_cache=True).past_key_values

    def states(self, batch: Batch, cache: Cache | None) -> Tensor:
        kept: list[Tensor] = []
        handles = [
            layer.register_forward_hook(lambda module, inputs, output: kept.append(output[batch.rows, batch.places]))
            for layer in self.decoder.layers
        ]
        self.decoder(input_ids=batch.ids, **batch.inputs(cache))
        for handle in handles:
            handle.remove()
        return torch.stack(kept)


class NNsight:
    """One trace of a batch; what is saved is indexed within it."""

    package = "nnsight"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None):
        from nnsight import TransformersModel

        self.model = TransformersModel(model, tokenizer=tokenizer, task="text-generation")

    def prefix(self, ids: Tensor) -> Cache:
        with self.model.trace(input_ids=ids, use_cache=True, logits_to_keep=1):
            cache = self.model.output.past_key_values.save()
        return cache

    def states(self, batch: Batch, cache: Cache | None) -> Tensor:
        import nnsight

        layers, rows, places = self.model.model.layers, batch.rows, batch.places
        with self.model.trace(input_ids=batch.ids, logits_to_keep=1, **batch.inputs(cache)):
            kept = nnsight.save([layer.output[rows, places] for layer in layers])
        return torch.stack(kept)


class NNterp:
    """The same over its standard names."""

    package = "nnterp"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None):
        from nnterp import StandardizedTransformer

        self.model = StandardizedTransformer(model, tokenizer=tokenizer)

    def prefix(self, ids: Tensor) -> Cache:
        with self.model.trace({"input_ids": ids}, use_cache=True, logits_to_keep=1):
            cache = self.model.output.past_key_values.save()
        return cache

    def states(self, batch: Batch, cache: Cache | None) -> Tensor:
        import nnsight

        model, rows, places, inputs = self.model, batch.rows, batch.places, batch.inputs(cache)
        given = {"input_ids": batch.ids, "attention_mask": inputs.pop("attention_mask")}
        with model.trace(given, logits_to_keep=1, **inputs):
            kept = nnsight.save([model.layers_output[layer][rows, places] for layer in range(model.num_layers)])
        return torch.stack(kept)


class TransformerLens:
    """Hooks on the blocks' outputs of a bridge, which keeps the model's own weights."""

    package = "transformer-lens"

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None):
        from transformer_lens.model_bridge import TransformerBridge

        self.bridge = TransformerBridge.boot_transformers(
            model.config.name_or_path, hf_model=model, tokenizer=tokenizer, device=str(model.device), dtype=model.dtype
        )

    def prefix(self, ids: Tensor) -> Cache:
        return self.bridge(ids, return_type="logits_and_cache", use_cache=True, logits_to_keep=1)[1]

    def states(self, batch: Batch, cache: Cache | None) -> Tensor:
        kept: list[Tensor] = []

        def keep(states: Tensor, hook: object) -> None:
            kept.append(states[batch.rows, batch.places])

        names = [f"blocks.{layer}.hook_out" for layer in range(self.bridge.cfg.n_layers)]
        self.bridge.run_with_hooks(
            batch.ids,
            return_type=None,
            fwd_hooks=[(name, keep) for name in names],
            logits_to_keep=1,
            **batch.inputs(cache),
        )
        return torch.stack(kept)


LIBRARIES = {kind.package: kind for kind in (Transformers, NNsight, NNterp, TransformerLens)}


def named(package: str) -> str:
    """A package with its version."""
    return f"{package} {version(package)}"
