"""A model's chat template: whether it suits the model, which else answers after demonstrations, and how it is rendered.

It comes with the model and is a program: it is rendered in a process of its own, under limits.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from transformers import PreTrainedTokenizerBase

from anchorscope.files.faults import reason_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel  # takes seconds to import, and describing a model does not need it

ANSWER = "anchorscope"  # a text that no template has
SECONDS = 2  # of a processor; templates take a few milliseconds
MEMORY = 2**30  # bytes beyond what this process has
LONGEST = 400_000  # bytes of a rendered prompt, far more than any model reads
STATM = Path("/proc/self/statm")  # only Linux has it, and only there memory is limited


def prompt_style_of(model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase) -> str:
    """Which prompt suits a model in memory."""
    settings: list[Any] = [model.generation_config, model.config]
    return prompt_style([some.to_dict() for some in settings if some is not None], tokenizer)


def prompt_style(settings: list[dict], tokenizer: PreTrainedTokenizerBase) -> str:
    """`chat` for an instruction-tuned model, `few_shot` for any other, by its config and its settings for generation.

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


def render_within_limits(render: Callable[[], str]) -> str:
    """What `render` returns. A template that fails, or takes too long or too much, is a ValueError of one line."""
    if not hasattr(os, "fork"):  # Windows
        return render()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _render_and_exit(render, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read(LONGEST + 2)
    os.kill(child, signal.SIGKILL)  # it has said all, or too much
    os.waitpid(child, 0)
    if len(said) > LONGEST + 1:
        raise ValueError(f"it makes more than {LONGEST:,} bytes")
    if not said:  # the system has ended it
        raise ValueError(f"it takes more than {SECONDS} seconds")
    if said[:1] == b"-":
        raise ValueError(said[1:].decode())
    return said[1:].decode()


def _render_and_exit(render: Callable[[], str], writer: int) -> NoReturn:
    """In the child: write `+` and the text, or `-` and why there is none. Only this ends it."""
    try:
        _limit()
        said = b"+" + render().encode()
    except MemoryError:
        said = b"-it takes more than 1 GB of memory"
    except BaseException as error:
        said = f"-{type(error).__name__}: {reason_of(error)}".encode(errors="replace")
    try:
        with open(writer, "wb") as pipe:
            pipe.write(said)
    finally:
        os._exit(0)


def _limit() -> None:
    import resource  # not on Windows

    limits = {resource.RLIMIT_CPU: SECONDS}
    if STATM.exists():
        limits[resource.RLIMIT_AS] = int(STATM.read_text(encoding="utf-8").split()[0]) * resource.getpagesize() + MEMORY
    for kind, limit in limits.items():
        most = resource.getrlimit(kind)[1]
        lowest = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (lowest, lowest))
