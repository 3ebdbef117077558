"""A detector to take away: probes of every layer, and all that is needed to use them on the same model elsewhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from anchorscope.answer.prompts import PromptSet
from anchorscope.detect.detector_file import About, read_detector
from anchorscope.detect.given_answers import tokenise
from anchorscope.detect.score import Scoring
from anchorscope.detect.trained import Trained
from anchorscope.engine.door import Engine, Tried
from anchorscope.extract.store import DTYPES
from anchorscope.files.arguments import check_texts, check_whole
from anchorscope.files.logs import log
from anchorscope.models.revision import tokenizer_hash
from anchorscope.text.tidy import tidy


@dataclass(frozen=True)
class Detector:
    """Tells how likely an answer of one model is hallucinated, from the model's states while it reads that answer."""

    trained: Trained
    about: About
    # How models are run, each tried out once: the trial takes longer than to score a few answers.
    tried: WeakKeyDictionary[PreTrainedModel, Tried] = field(
        default_factory=WeakKeyDictionary, repr=False, compare=False
    )

    def score(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        questions: Sequence[str],
        answers: Sequence[str],
        *,
        batch_tokens: int | None = None,
        layer: int | None = None,
    ) -> np.ndarray:
        """The probability that each answer is hallucinated, [answers]; NaN for an empty answer or a refusal.

        Each answer is the whole reply to the question of the same number; its first line is read. It is taken as given:
        the detector learnt from greedy answers of the model itself, and what it says of any other text was not
        measured. Half of its examples were hallucinated, so a probability supposes that half of the answers are.
        `batch_tokens` are computed together, by default as many as suit the device. `layer` reads another layer than
        the one that told best.
        """
        check_texts("questions", questions)
        check_texts("answers", answers)
        if batch_tokens is not None:
            check_whole("batch_tokens", batch_tokens, least=1)
        if len(questions) != len(answers):
            raise ValueError(f"There are {len(questions)} questions and {len(answers)} answers; each answer needs one.")
        questions = [tidy(question) for question in questions]
        if "" in questions:
            raise ValueError(f"Question {questions.index('') + 1} is empty.")
        self._check(model, tokenizer)
        read = self._layer(layer)
        log.info("answers are taken as given; the detector learnt from greedy answers of %s itself", self.about.model)
        (prompt,) = PromptSet(self.about.style, {"first": self.about.prompt}).built(tokenizer).values()
        scoring = Scoring(
            component=self.about.component,
            position=self.about.position,
            layer=read,
            probe=self.trained.layers(slice(read, read + 1)),
        )
        engine = Engine(model, batch_tokens, self.tried.get(model))
        logits = scoring.logits(engine, tokenise(tokenizer, prompt, questions, answers), answers)
        if engine.tried:
            self.tried[model] = engine.tried
        return torch.sigmoid(logits.double()).numpy()

    def _layer(self, asked: int | None) -> int:
        if asked is None:
            return self.about.layer
        check_whole("layer", asked, least=0, most=len(self.trained.weight) - 1)
        return asked

    def _check(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Refuse another model than the one that the detector was trained on, as far as that can be seen."""
        config = model.config.get_text_config()
        layers, width = self.trained.weight.shape
        needed = {"model_type": self.about.architecture, "num_hidden_layers": layers, "hidden_size": width}
        for name, value in needed.items():
            if getattr(config, name) != value:
                raise ValueError(
                    f"The detector is for {self.about.model}, whose {name} is {value}, but this model's is "
                    f"{getattr(config, name)}; use the model that it was trained on."
                )
        dtype = str(model.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise ValueError(f"The model computes in {dtype}; load it with one of {', '.join(DTYPES)}.")
        if self.about.dtype not in ("auto", dtype):
            log.warning("the detector learnt from %s; in %s probabilities differ a little", self.about.dtype, dtype)
        if not tokenizer.is_fast:
            raise ValueError("The tokenizer has no offset mapping; load the fast one, which has a tokenizer.json.")
        tokenizer("x")  # so that it forgets the padding and truncation of earlier calls
        found = tokenizer_hash(tokenizer)
        if found != self.about.tokenizer:
            raise ValueError(
                f"The detector is for {self.about.model} with the tokenizer {self.about.tokenizer}, but this tokenizer "
                f"is {found}; use the one that the run used."
            )


def load_detector(path: Path | str) -> Detector:
    """The detector in a file such as results/detectors/{model}.safetensors."""
    return Detector(*read_detector(path))
