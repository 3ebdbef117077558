"""Which prompt suits a model: its own chat template if it was tuned with one, else demonstrations."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from anchorscope.models.checks import read_object
from anchorscope.models.rendering import render_within_limits

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds to import, and describing a model does not need it

ANSWER = "anchorscope"  # a text that no template has


def prompt_style(folder: Path, tokenizer: PreTrainedTokenizerBase) -> str:
    """Which prompt suits the model in a folder, by its settings for generation and its config."""
    files = [folder / name for name in ("generation_config.json", "config.json")]
    return _style([read_object(file) for file in files if file.exists()], tokenizer)


def prompt_style_of(model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase) -> str:
    """The same for a model in memory."""
    settings: list[Any] = [model.generation_config, model.config]
    return _style([some.to_dict() for some in settings if some is not None], tokenizer)


def _style(settings: list[dict], tokenizer: PreTrainedTokenizerBase) -> str:
    """`chat` for an instruction-tuned model, `few_shot` for any other.

    Base models may come with the template of their tuned siblings. But only a tuned model ends its text with the token
    that ends an answer in the template.
    """
    return "chat" if _ends(settings, tokenizer) & _after_answer(tokenizer) else "few_shot"


def _ends(settings: list[dict], tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that end a text, by a model's settings or its tokenizer."""
    found = {tokenizer.eos_token_id}
    for some in settings:
        ends = some.get("eos_token_id")
        found |= {end for end in (ends if isinstance(ends, list) else [ends]) if type(end) is int}
    return found - {None}


def _after_answer(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    """The tokens that follow an answer in the chat template; none where there is no template, or it cannot be used."""
    if not tokenizer.chat_template:
        return set()
    turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": ANSWER}]
    try:
        text = render_within_limits(lambda: str(tokenizer.apply_chat_template(turns, tokenize=False)))
    except ValueError:
        return set()
    return set(tokenizer(text.rpartition(ANSWER)[2], add_special_tokens=False)["input_ids"])
