"""What a model says of its own answers, from files to a file."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.about_prompts import OPTIONS, SURE, build_askings
from anchorscope.detect.ask_about import ask_about
from anchorscope.extract.run import Balance, analysed
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table, write_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest

NEEDED = ["id", "question", "answer", "right", "refused", "property"]
SCHEMA = pa.schema([("id", pa.string()), ("p_true", pa.float32()), ("confidence", pa.float32())])


@dataclass(frozen=True)
class AskSettings:
    """How a model is asked about a file of its answers."""

    prompts: PromptSet  # the parts of the prompts that ask about answers
    dtype: str
    threads: int
    batch_tokens: int | None  # computed together; None for what suits the device
    balance: Balance  # whether as many right as wrong answers are analysed
    seed: int  # of the balanced draw
    code: str  # fingerprint


def ask_file(answers: Path | str, manifest: Path | str, target: Path | str, settings: AskSettings) -> None:
    """Write what the model says of its analysed answers in a shard.

    Everything that needs no card is done before one is taken.
    """
    examples = analysed(read_table(answers, NEEDED), settings.balance, settings.seed)
    ids, questions, texts = (examples[name].to_pylist() for name in ("id", "question", "answer"))
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    askings = build_askings(tokenizer, settings.prompts, questions, texts)
    model = load_model(described, settings.dtype, settings.threads)
    computed = computed_on(model)
    true, sure = ask_about(model, askings, settings.batch_tokens)  # [examples, options] each
    leave_cards(model)
    p_true = true.softmax(dim=1)[:, 0]
    confidence = sure.argmax(dim=1) / (len(OPTIONS[SURE]) - 1)
    for name, odd in zip(ids, (true.isnan().any(dim=1) | sure.isnan().any(dim=1)).tolist(), strict=True):
        if odd:
            raise ValueError(
                f"What {described.name} says of example {name} is not a number; set its dtype to bfloat16 or float32."
            )
    made_from = provenance(
        stage="ask_about",
        model=described.as_json(),
        prompts=settings.prompts.as_json(),
        dtype=settings.dtype,
        computed=computed,
        code=settings.code,
    )
    columns = [ids, p_true.numpy(), confidence.float().numpy()]
    write_table(target, pa.table(columns, schema=SCHEMA), made_from)
