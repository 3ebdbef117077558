"""Every model and dataset of config/paper.yaml for a small hub, under the same names, revisions and file names."""

import io
import json
from pathlib import Path

import polars as pl
import torch
from safetensors.torch import save
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from hub_server import Repository
from small_things import ROOT

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "tie_word_embeddings": False,
    "initializer_range": 0.25,
    "dtype": "float32",
}
# Llama 2's tokenizer is of Mistral's kind (SentencePiece with bytes to fall back on); Llama 3 shares 3.2's vocabulary.
TOKENIZERS = {"llama": "llama3_2", "qwen3": "qwen3", "mistral": "llama2"}
MISTRAL_CHAT = "{{ bos_token }}[INST] {{ messages[0]['content'] }} [/INST]"
SAID = ("king", "river", "moon")
PLACES = "Oslo Rome Paris Lima Cairo Delhi Quito Accra Tunis Seoul Hanoi Dakar Sofia Minsk Turin".split()


def shape_of(name: str) -> Path:
    """The published shape of a model of the config; a tuned one has the shape of its base."""
    return ROOT / f"workflow/resources/shapes/{name.replace('-instruct', '')}.json"


def small_model(name: str, tokenizer: PreTrainedTokenizerBase, seed: int) -> tuple[dict, dict[str, torch.Tensor]]:
    """The config and random weights of a miniature that can say a few words only."""
    own = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id}
    shape = json.loads(shape_of(name).read_text(encoding="utf-8")) | SMALL | own
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape))
    sayable = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"][-1] for word in SAID]
    head = torch.zeros_like(model.lm_head.weight)
    head[sayable] = torch.randn(len(sayable), head.shape[1])
    model.lm_head.weight = torch.nn.Parameter(head)
    return shape, model.state_dict()


def model_repository(name: str, model: dict, tokenizers: Path, seed: int) -> Repository:
    """A repository as publishers lay it out, with the weights again in formats that must not be loaded."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizers)
    config, weights = small_model(name, tokenizer, seed)
    settings = json.loads((tokenizers / "tokenizer_config.json").read_text(encoding="utf-8"))
    if model["prompt"] == "chat":
        settings.setdefault("chat_template", MISTRAL_CHAT)
    files = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": save({key: value.contiguous() for key, value in weights.items()}, {"format": "pt"}),
        "tokenizer.json": (tokenizers / "tokenizer.json").read_bytes(),
        "tokenizer_config.json": json.dumps(settings).encode(),
        "consolidated.safetensors": b"not these",
        "original/params.json": b"{}",
        "pytorch_model.bin": b"nor these",
    }
    return Repository(model["revision"], files)


def question(index: int) -> tuple[str, str]:
    """A question with its subject, no two alike."""
    subject = f"{PLACES[index % 15]} {PLACES[index // 15 % 15]}"
    return f"Who is the author of {subject} {index}?", f"{subject} {index}"


def table_of(rows: list[dict], kind: str) -> bytes:
    file = io.BytesIO()
    frame = pl.DataFrame(rows)
    if kind == "tsv":
        frame.write_csv(file, separator="\t")
    else:
        frame.write_parquet(file)
    return file.getvalue()


def dataset_repository(layout: str, dataset: dict, count: int) -> Repository:
    """Questions in a dataset's own columns and files. The miniatures can say three quarters of the accepted answers."""
    rows = []
    for index in range(count):
        text, subject = question(index)
        gold = SAID[index % len(SAID)] if index % 4 else "nobody"
        rows.append(
            {
                "popqa": {
                    "id": index,
                    "subj": subject,
                    "s_pop": index,
                    "possible_answers": json.dumps([gold, "ruler"]),
                },
                "triviaqa": {"answer": {"value": gold, "aliases": [gold, gold.upper()], "type": "FreeForm"}},
                "hotpotqa": {"answer": gold, "type": "bridge", "context": {"title": [subject], "sentences": [["..."]]}},
                "nq": {"answer": [gold]},
            }[layout]
            | {"question": text.lower().rstrip("?") if layout == "nq" else text}
        )
    if layout == "popqa":
        return Repository(dataset["revision"], {"README.md": b"# PopQA", "test.tsv": table_of(rows, "tsv")})
    folder, split = dataset.get("subset", "nq_open"), dataset["split"]
    configs = [{"config_name": folder, "data_files": [{"split": split, "path": f"{folder}/{split}-*"}]}]
    card = f"---\nconfigs: {json.dumps(configs)}\n---\n"
    files = {"README.md": card.encode(), f"{folder}/{split}-00000-of-00001.parquet": table_of(rows, "parquet")}
    return Repository(dataset["revision"], files)
