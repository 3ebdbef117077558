"""The paper's other experiments, each with the control that makes it mean something: a module for each, by its name."""

# Every experiment, in the order of pages, and what it is estimated from besides groups and layers: what new passes or
# readers `measured`, or files of every shard.
READS = {
    "patching": ("measured",),
    "answer_only": ("measured",),
    "boundary": ("chosen", "unsure"),
    "awareness": ("measured",),
    "saliency": ("measured",),
}
