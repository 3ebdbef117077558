"""Ask the model a shard of questions and judge its answers.

Writes one row per question: the answer's text and token ids, whether it is right, and the exact
answer tokens.
"""

import json

from anchorscope.answer.answers import MAX_NEW_TOKENS, ask, judge_all, plan
from anchorscope.answer.prompts import build_prompt
from anchorscope.files.identity import read_json
from anchorscope.files.logs import configure_logging, log
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table, write_table
from anchorscope.models.loading import leave_cards, load_model, load_tokenizer

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
