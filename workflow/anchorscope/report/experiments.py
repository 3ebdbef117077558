"""The other experiments on the report: for each its figure, what it shows, its verdicts and its numbers."""

from collections.abc import Mapping, Sequence

import polars as pl
from markupsafe import Markup

from anchorscope.report.claims import one_claim
from anchorscope.report.figures import Picture
from anchorscope.report.page import render
from anchorscope.report.tables import Titles, named
from anchorscope.summarise.wording import between, plain

EXPERIMENT_TITLES = {
    "patching": "Token patching",
    "answer_only": "The answer alone",
    "boundary": "Knowledge boundary",
    "awareness": "Self-awareness",
    "saliency": "Saliency",
}
SHOWN = {
    "patching": """How often the probe's verdict flips when the exact question words are replaced by those of another
question whose answer was hallucinated (`patch_question`), beside other words of the same donor (`patch_random`) and a
donor whose answer was right (`patch_right`).""",
    "answer_only": """How far the probe's confidence in its clean verdict moves when the model sees the answer without
its question (`answer_only`), beside the answer after an unrelated question (`answer_after_other`).""",
    "boundary": """How often each group is right, how often the model says that it does not know when that is offered,
how popular the subject is and how likely the answer, over all answers; and the gaps at equal clean logit.""",
    "awareness": """How well the group can be told from clean states, beside the clean logits alone (`signed`,
`absolute`, and `logit` with both), groups of the other prompt, and shuffled groups.""",
    "saliency": """Whether the flow from the exact question words to the answer has two modes over examples, beside the
flow from as many other words.""",
}
DECIMALS = {"popularity": 2, "logprob": 2, "dip": 3, "mean": 4}  # one for all other measures


def experiment_section(
    name: str,
    table: pl.DataFrame,
    pictures: Sequence[Picture],
    claims: Mapping,
    models: Titles,
    datasets: Titles,
) -> Markup:
    """One experiment of a run; `table` has its estimates."""
    return render(
        "experiment.html",
        shown=SHOWN[name],
        pictures=pictures,
        claim=one_claim(name, claims["claims"], models, datasets),
        table=named(experiment_numbers(table.filter(pl.col("model").is_in(list(models)))), models, datasets),
    )


def experiment_numbers(table: pl.DataFrame) -> pl.DataFrame:
    """Means over layers, one row per model, dataset, measure, condition, stratum and rule; anchors side by side."""
    keys = ["model", "dataset", "measure", "condition", "stratum", "rule"]
    # Saliency has one layer, and no mean over layers.
    whole = table.filter(pl.col("layer").is_null()) if table["layer"].null_count() else table
    texts = whole.drop_nulls("value").with_columns(
        text=pl.struct("measure", "value", "low", "high").map_elements(_text, return_dtype=pl.String),
        anchor=pl.col("anchor").replace({"question": "Q", "answer": "A"}).fill_null("value"),
    )
    return texts.pivot("anchor", index=keys, values="text", maintain_order=True).select(
        pl.col(keys).exclude("rule") if texts["rule"].null_count() == len(texts) else pl.col(keys),
        pl.exclude(keys),
    )


def _text(row: Mapping) -> str:
    decimals = DECIMALS.get(row["measure"], 1)
    value = plain(row["value"], decimals)
    return value if row["low"] is None else f"{value} ({between(row['low'], row['high'], decimals)})"
