"""Names in the experiments' tables, apart from what computes them, so that who only looks for them does not rerun."""

from anchorscope.probe.anchor_rules import FLIP, HONEST

RULE_NAMES = (FLIP, HONEST)
FLIPS = "flips"  # share of examples whose verdict flips, in percent
DELTA_P, DELTA_LOGIT = "delta_p", "delta_logit"  # how far the probe's confidence moves
ACCURACY, UNSURE, SUBJECT, LOGPROB = "accuracy", "unsure", "popularity", "logprob"  # what the boundary measures
EVERYONE = "all_answers"  # the condition of the boundary
EQUAL_LOGIT = "equal_logit"  # the stratum of a gap that is measured at equal clean logit
AUC, GAIN = "auc", "gain"  # what awareness measures
# The conditions of awareness: what tells the groups.
STATES, SIGNED, ABSOLUTE, LOGIT, SHUFFLED = READERS = ("states", "signed", "absolute", "logit", "shuffled")
OTHER_PROMPT = "other_prompt"  # the reader of states, compared with the groups of the other prompt
GROUP, OTHER_GROUP, SHUFFLED_GROUP = "question_anchored", "anchored_other_prompt", "anchored_shuffled"
# What saliency measures: the dip, its chance with one mode and with two, in percent, and the mean with its sample.
DIP, ONE_MODE, TWO_MODES, MEAN = "dip", "one_mode", "two_modes", "mean"
ENOUGH = 20  # examples that the smaller group needs at a layer, for the layer to count in the mean over layers
