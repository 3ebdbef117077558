"""The answer stage from files to a file."""

from dataclasses import dataclass
from pathlib import Path

from anchorscope.answer.answers import MAX_NEW_TOKENS, ask, grade_all, plan, remarks
from anchorscope.answer.prompts import ModelSettings
from anchorscope.engine.door import Engine
from anchorscope.files.logs import log
from anchorscope.files.provenance import provenance
from anchorscope.files.sealed_parquet import read_table, write_table
from anchorscope.models.hardware import computed_on
from anchorscope.models.loading import leave_cards, load_fetched_tokenizer, load_model
from anchorscope.models.manifest import Manifest


@dataclass(frozen=True)
class AnswerSettings(ModelSettings):
    """How a shard of questions is asked, under a single prompt."""

    rows: tuple[int, int]  # the shard's first question, and the one after its last


def answer_file(questions: Path | str, manifest: Path | str, target: Path | str, settings: AnswerSettings) -> None:
    """Write the model's graded answers to a shard of questions.

    Everything that needs no card is done before one is taken.
    """
    start, stop = settings.rows
    shard = read_table(questions).slice(start, stop - start).to_pylist()
    described = Manifest.read(manifest)
    tokenizer = load_fetched_tokenizer(described)
    ((name, prompt),) = settings.prompts.built(tokenizer).items()
    asked = plan(tokenizer, prompt, shard)
    model = load_model(described, settings.dtype, settings.threads)
    computed = computed_on(model)
    generated = ask(Engine(model, settings.batch_tokens), asked, MAX_NEW_TOKENS)
    leave_cards(model)
    answers = grade_all(tokenizer, shard, generated, asked.lengths)
    verdicts = answers.column("right").to_pylist()
    log.info("%d right, %d wrong, %d refused", *(verdicts.count(verdict) for verdict in (True, False, None)))
    odd = remarks(answers.column("answer").to_pylist(), settings.prompts.texts[name])
    for remark in odd:
        log.warning("%s", remark)
    made = provenance(**settings.made("answer", described), computed=computed, remarks=odd)
    write_table(target, answers, made)
