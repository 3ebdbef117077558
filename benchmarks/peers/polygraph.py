"""Our output scores beside LM-Polygraph's, value by value, on the same questions.

LM-Polygraph generates each answer itself, by its own calculators and with its own model class, and stops at a newline
as we do. Where both say the same tokens, each of its estimators is compared with our score of the same definition; both
rise with doubt. *From our numbers* feeds its estimators our log probabilities and entropies instead.

LM-Polygraph forbids the end of text as one of an answer's first two tokens, so the other tokens have a little more of
the probability there. *Nothing forbidden* is the same without an end of text, where that rule does nothing. Estimators
of single tokens leave out the last one, so ours are compared without it.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common import arguments, machine, report
from subjects import answered, first_prompt, load_model, load_tokenizer

from anchorscope.answer.answers import MAX_NEW_TOKENS
from anchorscope.detect.methods import METHODS

SCORES = {  # LM-Polygraph's name of each of our scores
    "sum_logprob": "MaximumSequenceProbability",
    "mean_logprob": "Perplexity",
    "mean_entropy": "MeanTokenEntropy",
}
TOKENS = {"logprobs": ("MaximumTokenProbability", -1), "entropies": ("TokenEntropy", 1)}  # and with which sign
Values = dict[str, list[np.ndarray]]  # of each score, an array for each answer


def theirs(stats: Mapping) -> Values:
    from lm_polygraph import estimators

    names = [*SCORES.values(), *(name for name, _ in TOKENS.values())]
    return {name: [np.asarray(one) for one in getattr(estimators, name)()(stats)] for name in names}


def ours(rows: Sequence[Mapping]) -> Values:
    """By LM-Polygraph's names."""
    whole = {theirs: [np.asarray(METHODS[mine].score(row)) for row in rows] for mine, theirs in SCORES.items()}
    return whole | {
        theirs: [sign * np.array(row[column][:-1]) for row in rows] for column, (theirs, sign) in TOKENS.items()
    }


def generated(model: object, texts: list[str], max_new_tokens: int) -> dict[str, list]:
    """LM-Polygraph's statistics of the answers to some prompts, one prompt at a time, so that nothing is padded."""
    from lm_polygraph.stat_calculators import EntropyCalculator, GreedyProbsCalculator

    stats: dict[str, list] = {"greedy_tokens": [], "greedy_log_likelihoods": [], "entropy": []}
    greedy, entropy = GreedyProbsCalculator(output_attentions=False), EntropyCalculator()
    for text in texts:
        found = greedy({}, [text], model, max_new_tokens=max_new_tokens)
        found |= entropy(found)
        for name, values in stats.items():
            values += found[name]
    return stats


def from_our_numbers(rows: Sequence[Mapping]) -> dict[str, list]:
    return {"greedy_log_likelihoods": [row["logprobs"] for row in rows], "entropy": [row["entropies"] for row in rows]}


def difference(some: list[np.ndarray], other: list[np.ndarray]) -> float:
    return float(max(np.abs(one - two).max(initial=0) for one, two in zip(some, other, strict=True)))


def all_say(ids: list[int], index: int, *found: dict[str, list]) -> bool:
    return all(stats["greedy_tokens"][index] == ids for stats in found)


def compare(rows: Sequence[Mapping], stats: dict[str, list], free: dict[str, list]) -> list[dict]:
    """A row for each estimator, over the answers that are the same. Of `free`, no token was forbidden."""
    same = [index for index, row in enumerate(rows) if all_say(row["generated_ids"], index, stats, free)]
    rows = [rows[index] for index in same]
    mine = ours(rows)
    whole, freely = (
        theirs({name: [values[index] for index in same] for name, values in found.items()}) for found in (stats, free)
    )
    fed = theirs(from_our_numbers(rows))
    titles = {theirs: mine for mine, theirs in SCORES.items()} | {name: mine for mine, (name, _) in TOKENS.items()}
    return [
        {
            "score": titles[name],
            "LM-Polygraph": name,
            "answers": len(same),
            "values": sum(one.size for one in mine[name]),
            "mean": float(np.concatenate([one.ravel() for one in mine[name]]).mean()),
            "largest difference": difference(mine[name], whole[name]),
            "nothing forbidden": difference(mine[name], freely[name]),
            "from our numbers": difference(mine[name], fed[name]),
        }
        for name in mine
    ]


def run(options: argparse.Namespace) -> None:
    from lm_polygraph import WhiteboxModel
    from lm_polygraph.utils.generation_parameters import GenerationParameters

    device = torch.device("cpu")
    model, tokenizer = load_model(options.model, None, torch.float32, device), load_tokenizer(options.model)
    rows = answered(model, tokenizer, options.count).to_pylist()
    prompt = first_prompt(tokenizer)
    texts = [f"{prompt.before}{row['question']}{prompt.after}" for row in rows]
    wrapped = WhiteboxModel(model, tokenizer, generation_parameters=GenerationParameters(stop_strings=["\n"]))
    stats = generated(wrapped, texts, MAX_NEW_TOKENS)
    model.generation_config.eos_token_id = None
    free = generated(wrapped, texts, MAX_NEW_TOKENS)
    about = {"answers": len(rows), "dtype": "torch.float32", "lm-polygraph": version("lm-polygraph")}
    report(compare(rows, stats, free), about | machine(), options.record)


if __name__ == "__main__":
    options = arguments(
        model={"required": True, "help": "a folder with weights and tokenizer"},
        count={"type": int, "default": 48, "help": "questions; those without an answer drop out"},
        threads={"type": int, "default": torch.get_num_threads()},
    )
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        run(options)
    except ImportError as error:
        raise SystemExit(f"LM-Polygraph is not installed: {error}.") from error
