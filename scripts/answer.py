"""Ask the model a shard of questions and judge its answers.

Writes one row per question: the answer's text and token ids, whether it is right, and the exact
answer tokens.
"""

import json

from anchorscope.answers import MAX_NEW_TOKENS, ask, judge_all, plan
from anchorscope.files import provenance, read_json
from anchorscope.loading import leave_cards, load_model, load_tokenizer
from anchorscope.logs import configure_logging, log
from anchorscope.parquet import read_table, write_table
from anchorscope.prompts import build_prompt

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    start, stop = params.rows
    questions = read_table(snakemake.input.questions).slice(start, stop - start).to_pylist()
    manifest = read_json(snakemake.input.manifest)
    tokenizer = load_tokenizer(manifest)
    style = json.loads(params.prompt)
    asked = plan(tokenizer, build_prompt(tokenizer, style["style"], style["texts"]["first"]), questions)
    model = load_model(manifest, params.dtype, snakemake.threads)
    generated = ask(model, asked, MAX_NEW_TOKENS, params.batch_tokens)
    leave_cards(model)
    answers = judge_all(tokenizer, questions, generated)
    verdicts = answers.column("right").to_pylist()
    log.info("%d right, %d wrong, %d refused", *(verdicts.count(verdict) for verdict in (True, False, None)))
    about = provenance(stage="answer", model=manifest, prompt=style, dtype=params.dtype, code=params.code)
    write_table(snakemake.output[0], answers, about)
