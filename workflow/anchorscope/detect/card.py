"""The card of a detector: what it was trained on, how well it tells, and what it must not be used for."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anchorscope.detect.detector_file import About
from anchorscope.files.atomic import write_text
from anchorscope.files.identity import canonical_json
from anchorscope.models.manifest import Manifest


@dataclass(frozen=True)
class Quality:
    """How well cross-fitted probes tell hallucinated answers from right ones."""

    dataset: str  # "all" for all of them together
    right: int
    hallucinated: int
    auc: float
    auc_low: float
    auc_high: float
    calibration_error: float
    best_layer: int  # with the highest cross-fitted AUC


def write_card(
    target: Path | str, model: Manifest, about: About | None, qualities: Sequence[Quality], made: dict[str, str]
) -> None:
    """Write the card as Markdown. `made` is the detector's provenance; `about` is None where there is no detector."""
    made_from = json.loads(made["anchorscope"])
    if about is None:
        parts = [f"# No detector for {model.name}", _skipped(made_from["skipped"])]
    else:
        parts = [
            f"# A detector of hallucinated answers for {model.name}",
            _what(model, about),
            _warnings(model, made_from["sources"], about),
            "## How well it tells",
            _table(qualities),
            MEASURED,
            "## What it was trained on",
            _data(about, made_from),
            _skipped(made_from["skipped"]),
            "## What it must not be used for",
            LIMITS,
            "## What fixes it",
            _fixed(about, made_from),
        ]
    write_text(target, "\n\n".join(filter(None, parts)) + "\n")


MEASURED = (
    "Every example was scored by probes that never saw it, nor another question about its subject; the layer was "
    "chosen without it, too. AUC has a 95 % interval by DeLong, questions about one subject counted together. The best "
    "layer is the one with the highest such AUC on these examples, which is why `score` does not go by it."
)
LIMITS = """\
- Another model, another tokenizer or another prompt than these: the states would be others.
- A rate of hallucinations: a probability supposes that half of the answers are hallucinated, as in training.
- A verdict on its own. It ranks answers; it does not know whether one is true.
- Text that the model did not write: it can be scored, but how well was not measured. The same holds for sampled
  answers, long answers and other kinds of questions."""


def _what(model: Manifest, about: About) -> str:
    return (
        f"One linear probe for each of the {model.layers} layers of {model.name} ({about.architecture}, width "
        f"{model.width}). "
        f"It reads `{about.component}` at `{about.position}` and gives the probability that an answer is hallucinated. "
        f"`score` reads layer {about.layer}, which told best on folds inside the training data."
    )


def _warnings(model: Manifest, sources: dict[str, str], about: About) -> str:
    said = []
    if model.weights == "random":
        said.append("**The weights of this model are random. What the detector says means nothing.**")
    bundled = [name for name in about.datasets if sources[name] == "bundled"]
    if bundled:
        said.append(
            f"**{', '.join(bundled)}: questions that come with Anchorscope, chosen so that SmolLM2-135M is right on "
            "about half. They show that the detector works, not how well it does on yours.**"
        )
    return "\n\n".join(said)


def _table(qualities: Sequence[Quality]) -> str:
    lines = ["| dataset | right | hallucinated | AUC | 95 % interval | calibration error | best layer |"]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [
        f"| {one.dataset} | {one.right} | {one.hallucinated} | {one.auc:.3f} | {one.auc_low:.3f} to {one.auc_high:.3f} "
        f"| {one.calibration_error:.3f} | {one.best_layer} |"
        for one in qualities
    ]
    return "\n".join(lines)


def _data(about: About, made_from: dict) -> str:
    origins = ", ".join(f"{name} ({made_from['sources'][name]})" for name in about.datasets)
    return (
        f"{about.examples} questions of {origins}, each with the greedy answer of {about.model} under the "
        f"`{about.style}` prompt. An answer is hallucinated where no accepted answer stands in it. Refusals were left "
        "out. The penalty of each layer's probe was chosen on inner folds."
    )


def _skipped(skipped: dict[str, str]) -> str:
    return "\n".join(f"Left out: {reason}" for reason in skipped.values())


def _fixed(about: About, made_from: dict) -> str:
    prompt = hashlib.sha256(canonical_json([about.style, about.prompt]).encode()).hexdigest()[:16]
    rows = {
        "weights": f"{about.weights}, {about.revision}",
        "tokenizer": about.tokenizer,
        "prompt": f"{about.style}, {prompt}",
        "folds, seed": f"{made_from['folds']}, {made_from['seed']}",
        "code": made_from["code"],
        **made_from["versions"],
    }
    return "\n".join(["| what | fingerprint or version |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])
