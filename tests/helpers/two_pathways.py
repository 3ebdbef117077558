"""A small trained transformer with two pathways by construction, and its questions.

Asked about a person, it knows the one place that belongs to the person: whether an answer is right depends on the
question. Asked about a thing, every answer ending in -ix is right and every one ending in -ox is wrong, whatever was
asked: the answer alone tells. After each answer the model says "yes" or "no". Without a question it cannot know about
places.

`python tests/helpers/two_pathways.py` trains it, in minutes on a CPU, and writes the weights that the tests load.
"""

import random
from pathlib import Path

import pyarrow as pa
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from anchorscope.answer.answers import plan
from anchorscope.answer.donors import find_donors
from anchorscope.answer.prompts import Prompt

WEIGHTS = Path(__file__).resolve().parents[1] / "cases/two_pathways.safetensors"
COUNT = 60  # of persons, of their places, of things, and of each form of answer
PERSONS, PLACES, THINGS = ([f"{name}{number}" for number in range(COUNT)] for name in ("person", "place", "thing"))
RIGHT_FORM, WRONG_FORM = ([f"word{number}{end}" for number in range(COUNT)] for end in ("ix", "ox"))
KINDS = [f"kind{number}" for number in range(6)]  # of things
FILLERS = "what which who is was the of a in at".split()
FRAMES = {"first": ("question", "answer"), "second": ("ask", "reply")}
WORDS = ["<s>", "</s>", "yes", "no", "question", "answer", "ask", "reply"]
VOCABULARY = [*WORDS, *FILLERS, *PERSONS, *PLACES, *THINGS, *RIGHT_FORM, *WRONG_FORM, *KINDS]
NUMBER = {word: number for number, word in enumerate(VOCABULARY)}
HOME = dict(zip(PERSONS, random.Random(0).sample(PLACES, COUNT), strict=True))  # which the model learns
STEPS, BATCH, RATE = 2500, 128, 3e-3


def small_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word."""
    words = Tokenizer(WordLevel(NUMBER, unk_token="</s>"))
    words.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")


def prompts() -> dict[str, Prompt]:
    return {name: Prompt(f"<s> {begin} ", f" {end}", special_tokens=False) for name, (begin, end) in FRAMES.items()}


def untrained() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        max_position_embeddings=64,
        bos_token_id=0,
        eos_token_id=1,
        tie_word_embeddings=True,
    )
    return LlamaForCausalLM(config).float()


def trained() -> LlamaForCausalLM:
    """The model with its saved weights."""
    model = untrained()
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(WEIGHTS).items()}, strict=False)
    model.tie_weights()
    return model.eval().requires_grad_(False)


def question_about_person(draw: random.Random, person: str) -> list[str]:
    return [*draw.choices(FILLERS, k=draw.randint(2, 4)), person, *draw.choices(FILLERS, k=draw.randint(0, 2))]


def question_about_thing(draw: random.Random, thing: str) -> list[str]:
    return [*draw.choices(FILLERS, k=draw.randint(1, 3)), draw.choice(KINDS), draw.choice(FILLERS), thing]


def lesson(draw: random.Random) -> list[str]:
    """Words of which the last one says whether the answer before it is right."""
    person = draw.choice(PERSONS)
    about_person, right = draw.random() < 0.5, draw.random() < 0.5
    if about_person:
        question, answer = question_about_person(draw, person), HOME[person] if right else draw.choice(PLACES)
        right = answer == HOME[person]
    else:
        question = question_about_thing(draw, draw.choice(THINGS))
        answer = draw.choice(RIGHT_FORM if right else WRONG_FORM)
        if draw.random() < 0.3:
            question = question_about_person(draw, person)
    if draw.random() < 0.15:  # the answer alone: a place may then be right or wrong
        right = draw.random() < 0.5 if about_person else right
        return ["<s>", answer, "yes" if right else "no"]
    begin, end = draw.choice(list(FRAMES.values()))
    return ["<s>", begin, *question, end, answer, "yes" if right else "no"]


def train() -> LlamaForCausalLM:
    model, draw = untrained().train(), random.Random(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        lessons = [[NUMBER[word] for word in lesson(draw)] for _ in range(BATCH)]
        longest = max(map(len, lessons))
        tokens = torch.tensor([one + [1] * (longest - len(one)) for one in lessons])
        last = torch.tensor([len(one) - 1 for one in lessons])
        rows = torch.arange(BATCH)
        logits = model(input_ids=tokens).logits[rows, last - 1]
        loss = torch.nn.functional.cross_entropy(logits, tokens[rows, last])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 100 == 0:
            print(step, f"{loss.item():.3f}", flush=True)
    return model.eval()


def examples(tokenizer: PreTrainedTokenizerFast) -> pa.Table:
    """Each person and each thing is asked about twice, and answered once rightly and once wrongly."""
    draw, rows = random.Random(1), []
    for name in [*PERSONS, *THINGS]:
        for right in (True, False):
            if name in HOME:
                words, exact = question_about_person(draw, name), [name]
                answer = HOME[name] if right else draw.choice([place for place in PLACES if place != HOME[name]])
                gold = HOME[name]
            else:
                words = question_about_thing(draw, name)
                exact = [words[-3], name]
                answer, gold = draw.choice(RIGHT_FORM if right else WRONG_FORM), name
            rows.append(_row(words, exact, answer=answer, gold=gold, subject=name, right=right))
    lengths = plan(tokenizer, prompts()["first"], rows).lengths
    return pa.Table.from_pylist([row | mine for row, mine in zip(rows, find_donors(rows, lengths), strict=True)])


def _row(words: list[str], exact: list[str], *, answer: str, gold: str, subject: str, right: bool) -> dict:
    question = " ".join(words)
    starts = [len(" ".join([*words[: words.index(word)], ""])) for word in exact]
    spans = [
        {"start": start, "end": start + len(word), "kind": None} for start, word in zip(starts, exact, strict=True)
    ]
    return {
        "id": f"{subject} {right}",
        "question": question,
        "gold": [gold],
        "subject": subject,
        "property": None,
        "popularity": None,
        **dict.fromkeys(("question_form", "answer_form", "answer_in_question")),
        "spans": spans,
        "right": right,
        "refused": False,
        "generated_ids": [NUMBER[answer], NUMBER["</s>"]],
        **dict.fromkeys(("exact_first", "exact_last", "answer_final"), 0),
    }


if __name__ == "__main__":
    save_file(
        {name: tensor.half().contiguous() for name, tensor in train().state_dict().items() if "lm_head" not in name},
        WEIGHTS,
    )
