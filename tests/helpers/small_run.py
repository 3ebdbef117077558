"""The small run that tests share: one random model, two datasets of two shards, and a real Snakemake."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import yaml

from anchorscope.answer.answers import answer_ends, stop_tokens
from anchorscope.answer.prompts import decoded_offsets, encode, few_shot_prompt
from anchorscope.text.normal_words import normal_words
from engines import greedy
from small_things import ROOT, tiny_model

COPIED = ["Snakefile", "config.yaml", "requirements.lock", "workflow", "scripts", "envs", "profiles"]
SNAKEMAKE = [sys.executable, "-m", "snakemake"]
WORDS = "river mountain king queen city planet colour metal language ocean painter author battle island desert".split()


def snakemake(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [*SNAKEMAKE, *arguments, "--cores", "2", "--configfile", "test.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})


def jobs(done: subprocess.CompletedProcess) -> Counter:
    """Rule names and how often a dry run would run them."""
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    if "Nothing to be done" in text:
        return Counter()
    table = re.search(r"job +count\n-+ +-+\n(.*?)\ntotal", text, re.S)
    return Counter({name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)", table[1], re.M) if name != "all"})


def copy_project(target: Path) -> Path:
    for name in COPIED:
        source = ROOT / name
        if source.is_symlink():
            (target / name).symlink_to(os.readlink(source))
        elif source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, target / name)
    return target


def save_model(folder: Path, tokenizer, seed: int) -> None:
    model = tiny_model("llama", len(tokenizer), layers=2, seed=seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_questions(path: Path, tokenizer, count: int, start: int = 0) -> None:
    """Questions in NQ's layout, numbered from `start`; the random model happens to get every second one right."""
    shots = json.loads((ROOT / "workflow/resources/prompts.json").read_text(encoding="utf-8"))["few_shot"]["first"]
    questions = [
        f"which {WORDS[i % 15]} is number {i} of the {WORDS[i // 15 % 15]}" for i in range(start, start + count)
    ]
    model = tiny_model("llama", len(tokenizer), layers=2, seed=0)
    encoded = encode(tokenizer, few_shot_prompt(shots), questions)
    stops = stop_tokens(model, answer_ends(tokenizer))
    answers = greedy(model, [item.ids for item in encoded], stops, 32, batch_tokens=2048)
    with open(path, "w", encoding="utf-8") as file:
        for index, (question, answer) in enumerate(zip(questions, answers, strict=True)):
            said = [word for word, _ in normal_words(decoded_offsets(tokenizer, answer.ids)[0].split("\n")[0])]
            gold = " ".join(said[:2]) if index % 2 and said else "nothing of the kind"
            file.write(json.dumps({"question": question, "answer": [gold]}) + "\n")


def write_hard_questions(folder: Path) -> dict:
    """A dataset on which the model is hardly ever right, and its entry in the config."""
    lines = (folder / "one.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = [json.dumps(json.loads(line) | {"answer": ["nothing of the kind"]}) for line in lines]
    (folder / "hard.jsonl").write_text("\n".join([*wrong[:100], *lines[100:]]) + "\n")
    return {"title": "Hard", "layout": "nq", "source": "file", "path": "hard.jsonl"}


def base_config() -> dict:
    return {
        "questions": 120,
        "shard_size": 60,
        "bootstrap_draws": 200,
        "components": ["resid", "attn", "mlp"],
        "positions": ["answer_last", "final", "before_answer"],
        "models": {"tiny": {"title": "Tiny", "path": "tiny-model", "prompt": "few_shot", "dtype": "float32"}},
        "datasets": {
            name: {"title": name.upper(), "layout": "nq", "source": "file", "path": f"{name}.jsonl"}
            for name in ("one", "two")
        },
        "figures": {"main": {"models": ["tiny"]}},
    }


def write_config(folder: Path, config: dict) -> None:
    (folder / "test.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def prepare(folder: Path, tokenizer) -> Path:
    """The project, a model, questions and a config: everything that the small run starts from."""
    copy_project(folder)
    save_model(folder / "tiny-model", tokenizer, seed=0)
    for name, count in (("one", 130), ("two", 110)):
        write_questions(folder / f"{name}.jsonl", tokenizer, count)
    write_config(folder, base_config())
    return folder


def start_again(finished: Path, folder: Path) -> Path:
    """What a finished small run started from, in another folder."""
    folder.mkdir(exist_ok=True)
    copy_project(folder)
    shutil.copytree(finished / "tiny-model", folder / "tiny-model")
    for name in ("one.jsonl", "two.jsonl", "test.yaml"):
        shutil.copy2(finished / name, folder / name)
    return folder


def rewind(finished: Path, folder: Path, *stages: str) -> Path:
    """A copy of a finished small run in which only the named folders of results are there."""
    shutil.copytree(finished, folder, symlinks=True)
    for path in (folder / "results").iterdir():
        if path.name not in stages:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return folder
