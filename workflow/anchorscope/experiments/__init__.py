"""The other experiments: where else the two groups should differ, each with its control."""

NAMES = ("patching", "answer_only", "boundary", "awareness", "saliency")
