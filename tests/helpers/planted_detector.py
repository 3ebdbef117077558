"""Activations in which a direction tells hallucinated answers, in real files, and a detector trained on them."""

from pathlib import Path

import numpy as np
import torch

from anchorscope.detect.detector_file import About, DetectorProbes
from anchorscope.extract.axes import HEADLINE, PASSES, Headline
from anchorscope.extract.store import ActivationWriter, file_of
from anchorscope.files.sealed_parquet import provenance
from anchorscope.models.manifest import Manifest
from anchorscope.probe.fitting import Fitting

SHOTS = [{"question": "Who wrote Emma?", "answer": "Jane Austen"}, {"question": "is ice cold", "answer": "yes"}]
PROMPTS = {"style": "few_shot", "texts": {"first": SHOTS, "second": SHOTS[:1]}}
LAYERS, WIDTH = 4, 32  # of the tiny models
FITTING = Fitting(Headline("resid", "answer_last"), folds=5, seed=0, on_gpu=False, code="0123456789abcdef")
SOURCES = {"one": "file", "two": "bundled", "few": "hub"}


def write_activations(folder: Path, seed: int, right: int = 60, wrong: int = 60) -> Path:
    """Random states whose first number tells the label, the more the later the layer; returns the headline's file."""
    draw = np.random.default_rng(seed)
    labels = draw.permutation([True] * wrong + [False] * right)
    states = draw.normal(size=(1, LAYERS, len(PASSES), 1, len(labels), WIDTH))
    states[..., 0] += np.arange(LAYERS)[:, None, None, None] * 0.8 * labels
    states = 3 * states + draw.normal(size=WIDTH)
    keys = [
        {"id": f"q{number}", "right": not label, "subject": None, "popularity": None, "cut": 1}
        for number, label in enumerate(labels.tolist())
    ]
    made_from = provenance(stage="extract", prompts=PROMPTS)
    with ActivationWriter(folder, LAYERS, WIDTH, torch.float32, made_from, grid=HEADLINE) as writer:
        writer.add(keys, torch.from_numpy(states).float())
    return file_of(folder, "resid", "answer_last")


def manifest(tokenizer: str, weights: str = "trained") -> Manifest:
    """That of a tiny model; `tokenizer` is a hash of its tokenizer."""
    return Manifest(
        name="tiny",
        source={"path": "tiny-model"},
        path="tiny-model",
        weights=weights,
        revision="fedcba9876543210",
        architecture="llama",
        parameters=1,
        layers=LAYERS,
        width=WIDTH,
        stored_dtype="float32",
        tokenizer=tokenizer,
        prompt="few_shot",
    )


def about(tokenizer: str, **other: object) -> About:
    """What a detector for a tiny model is about."""
    described = manifest(tokenizer)
    values = {name: getattr(described, name) for name in ("weights", "revision", "architecture", "tokenizer")}
    place = {"component": "resid", "position": "answer_last", "layer": 2}
    values |= {"model": "tiny", "style": "few_shot", "prompt": SHOTS, "datasets": ["one"], "examples": 120, **place}
    return About(**values | other)


def probes(seed: int = 0) -> DetectorProbes:
    """Any probes will do, as long as no number is special."""
    draw = torch.Generator().manual_seed(seed)
    weight, mean = (torch.randn(LAYERS, WIDTH, generator=draw) for _ in range(2))
    scale, bias = 0.5 + torch.rand(LAYERS, WIDTH, generator=draw), torch.randn(LAYERS, generator=draw)
    return DetectorProbes(0.3 * weight, mean, scale, bias, strength=torch.ones(LAYERS), inner_loss=torch.ones(LAYERS))
