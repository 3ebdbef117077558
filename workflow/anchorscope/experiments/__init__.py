"""The paper's other experiments, each of which a config asks for by name."""

NAMES = ("patching", "answer_only", "boundary", "awareness", "saliency")
