"""Run clean and knocked-out passes over a shard's answers and keep the probed vectors.

Writes one row an analysed example, one column a component, position, prompt, intervention and layer.
"""

import json

import pyarrow.parquet as pq

from anchorscope.extract import analysable, balanced, extract
from anchorscope.files import atomic, provenance, read_json
from anchorscope.logs import configure_logging, log
from anchorscope.models import load_model, load_tokenizer
from anchorscope.prompts import build_prompt
from anchorscope.store import ActivationWriter

if __name__ == "__main__":
    configure_logging(snakemake.log[0])
    params = snakemake.params
    usable = analysable(pq.read_table(snakemake.input.answers).to_pylist())
    examples = balanced(usable, params.seed) if params.balance else usable
    log.info("%d answers can be analysed, %d are left out by the balance", len(usable), len(usable) - len(examples))
    manifest = read_json(snakemake.input.manifest)
    tokenizer = load_tokenizer(manifest)
    model = load_model(manifest, params.dtype, snakemake.threads)
    style = json.loads(params.prompts)
    prompts = {name: build_prompt(tokenizer, style["style"], text) for name, text in style["texts"].items()}
    about = provenance(stage="extract", model=manifest, prompts=style, dtype=params.dtype, code=params.code)
    with atomic(snakemake.output[0]) as target:
        writer = ActivationWriter(target, manifest["layers"], manifest["width"], model.dtype, about)
        extract(model, tokenizer, prompts, examples, writer, params.batch_tokens)
        writer.close()
