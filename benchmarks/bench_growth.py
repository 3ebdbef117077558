"""Host memory and time of the extract stage as the number of examples grows, through the command for a GPU node.

`python -m anchorscope extract MANIFEST CHOSEN OUTPUT` runs in a process of its own for every number of examples,
on a small random Llama with a real tokenizer. The questions are the bundled ones, numbered so that no two are the same,
in a seeded order of which the smaller runs take the beginning: every size has the same distribution of lengths. Answers
have 2 to 6 random tokens.

Peak memory is the process's largest resident set. "wall" is the time of the whole process, "extract" that of the
extraction alone, as the stage logs it, without start-up, model loading and tokenising; "processor" adds up all cores.
The sizes take turns, `--repeats` times, and the median of each is shown: a run of a few seconds varies by a tenth. A
comparison is meaningful only if every run fills the writer's buffer for a row group; with the default model even the
smaller run does.
"""

import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from common import ROOT, arguments, machine, report
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase
from transformers.utils import logging

from anchorscope.answer.answers import ANSWERS_SCHEMA
from anchorscope.extract.axes import HEADLINE
from anchorscope.extract.store import file_of
from anchorscope.files.identity import package_file
from anchorscope.files.sealed_parquet import provenance, write_table
from anchorscope.models.describe import describe
from anchorscope.models.fetch import SPARE_TOKENIZER
from anchorscope.text.content_words import exact_question_spans

QUESTIONS = ROOT / "workflow" / "resources" / "questions"
# Stands between this benchmark and the stage, because a process inherits the peak of the one that starts it.
LAUNCHER = """
import os, sys
process = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, *sys.argv[1:]])
_, status, usage = os.wait4(process, 0)
print(usage.ru_maxrss, usage.ru_utime + usage.ru_stime)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def make_model(tokenizer: PreTrainedTokenizerBase, folder: Path, layers: int, width: int) -> Path:
    """Save a random model and its tokenizer in `folder`, and return the path of its manifest."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    manifest = folder.with_suffix(".json")
    describe(folder, "growth", {"path": str(folder)}).write(manifest)
    return manifest


def make_answers(tokenizer: PreTrainedTokenizerBase, count: int) -> list[dict]:
    draw = random.Random(0)
    files = sorted(QUESTIONS.glob("*.jsonl"))
    texts = [json.loads(line)["question"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [text for text in texts if exact_question_spans(text)]
    copies = -(-count // len(texts))
    # Numbers of equal length, so that none makes a question longer than another's.
    numbered = [f"{text} {copy:0{len(str(copies))}d}" for copy in range(copies) for text in texts]
    draw.shuffle(numbered)
    rows = []
    for index, question in enumerate(numbered[:count]):
        ids = [draw.randrange(1000, len(tokenizer)) for _ in range(draw.randint(2, 6))]
        answer = tokenizer.decode(ids)
        last = draw.randrange(len(ids))
        row = {"id": f"{index:012d}", "question": question, "gold": [answer], "answer": answer, "exact_answer": answer}
        row |= {"spans": [asdict(span) for span in exact_question_spans(question)]}
        row |= {"generated_ids": ids, "exact_first": 0, "exact_last": last, "answer_final": len(ids) - 1}
        rows.append(row | {"right": index % 2 == 0, "refused": False, "subject": None, "popularity": None})
    return rows


def run(manifest: Path, answers: list[dict], folder: Path, options) -> dict:
    """Run the stage once, and delete its output."""
    source, target, log = (folder / name for name in ("chosen.parquet", "activations", "extract.log"))
    made_from = provenance(stage="choose", prompts={"style": "few_shot"})
    write_table(source, pa.Table.from_pylist(answers, schema=ANSWERS_SCHEMA), made_from)
    command = ["-m", "anchorscope", "extract", manifest, source, target, "--log", log]
    command += ["--dtype", options.dtype, "--threads", options.threads]
    command += ["--batch-tokens", options.batch_tokens] if options.batch_tokens else []
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *map(str, command)], cwd=ROOT / "workflow", capture_output=True, text=True
    )
    wall = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"The stage failed:\n{done.stderr}")
    count, extract = re.search(r"extracting activations: (\d+) done in ([\d.]+) s", log.read_text()).groups()
    file = file_of(target, *HEADLINE.places()[0])
    if not int(count) == pq.read_metadata(file).num_rows == len(answers):
        raise AssertionError(f"{count} of {len(answers)} examples were extracted")
    peak, used = map(float, done.stdout.split())
    size = file.stat().st_size
    shutil.rmtree(target)
    return {
        "examples": len(answers),
        "peak MiB": peak / 1024,
        "wall s": wall,
        "extract s": float(extract),
        "processor s": used,
        "examples/s": len(answers) / float(extract),
        "file GB": size / 1e9,
    }


if __name__ == "__main__":
    options = arguments(
        examples={"type": int, "nargs": "+", "default": [1000, 10000], "help": "the first is compared with the last"},
        repeats={"type": int, "default": 3},
        layers={"type": int, "default": 6},
        width={"type": int, "default": 256, "help": "a multiple of 64"},
        batch_tokens={"type": int, "help": "by default what suits the device"},
        tokenizer={"help": "a folder with a tokenizer; by default SmolLM2's, from the package that ships it"},
        dtype={"default": "auto"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    logging.disable_progress_bar()
    if options.tokenizer:
        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    else:
        spare = package_file(*SPARE_TOKENIZER)
        tokenizer = AutoTokenizer.from_pretrained(spare.parent, gguf_file=spare.name)
    answers = make_answers(tokenizer, max(options.examples))
    with tempfile.TemporaryDirectory() as name:
        manifest = make_model(tokenizer, Path(name) / "model", layers=options.layers, width=options.width)
        runs = {count: [] for count in options.examples}
        for count in options.examples * options.repeats:
            runs[count].append(run(manifest, answers[:count], folder=Path(name), options=options))
            print(runs[count][-1], flush=True)
    results = [{key: median(one[key] for one in same) for key in same[0]} for same in runs.values()]
    first, last = results[0], results[-1]
    ratios = {f"{key}, last / first": last[key] / first[key] for key in list(first)[:5]}
    report(results, {**ratios, "layers": options.layers, "width": options.width, **machine()}, options.record)
