"""The paper's other experiments, each with the control that makes it mean something."""

NAMES = ("patching", "answer_only", "boundary", "awareness", "saliency")
