"""Titles of what figures show, in the order of panels and legends. Nothing slow to import is needed for them."""

from anchorscope.extract.axes import window_of

LAYER = "Layer"  # the x axis of most figures
ANCHOR_TITLES = {"question": "Question-Anchored", "answer": "Answer-Anchored"}
ANCHOR_LETTERS = {"question": "Q", "answer": "A"}
TEXT_ORDER = ("before_answer", "answer_last", "final")  # of the positions
RULE_TITLES = {
    "flip": "anchors by verdict flip at each layer",
    "fixed": "anchors by verdict flip at the reference layer",
    "crossfit": "anchors labelled and measured by different probes",
    "honest": "anchors labelled and measured by different probes under different prompts",
}
TAKEN_OUT = {
    "measured": "as measured",
    "recentred": "without the common push",
    "residual": "without the common push and slope",
}
INTERVENTION_TITLES = {
    "exact_question": "exact question words cut",
    "random_question": "control: as many other words cut",
    "subject": "subject cut",
    "random_subject": "control of the subject: as many other words cut",
    "property": "property cut",
    "random_property": "control of the property: as many other words cut",
    "content": "all but function words cut",
    "random_content": "control of these: as many other words cut",
    "whole_question": "whole question cut",
    "random_whole_question": "control of the whole question: as many words before it cut",
}

# What a line's dashes mean, in every figure but the published one, whose groups have names of their own.
IF_ONE_MECHANISM = "if one mechanism"
RANDOM_TWIN = "random weights"
CLEAN_LINE, CUT_LINE = "clean", "cut"
SHUFFLED_LABELS = "shuffled labels"
SHUFFLED_GROUPS = "shuffled groups"
CONTROL, ALL_OTHERS = "control", "all others"  # beside the titles of datasets, none of which has such a title

FEW = 20  # groups of fewer examples are drawn faint, and so are layers whose probe is no better than chance
FAINT_MEANS = f"faint: fewer than {FEW} examples, or a probe no better than chance"


def intervention_title(name: str) -> str:
    """Describe an intervention in words; a windowed knockout names its layers."""
    window = window_of(name)
    if window is None:
        return INTERVENTION_TITLES.get(name, name)
    layers = f"in the last {window} layers up to the one plotted" if window > 1 else "in the layer plotted"
    return f"exact question words cut {layers} only"


def window_title(window: int) -> str:
    """Describe how many layers a windowed knockout masks, for a legend."""
    return f"cut in the last {window} layers up to it" if window > 1 else "cut in the layer plotted"
