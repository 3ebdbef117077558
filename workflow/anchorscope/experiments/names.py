"""Names in the experiments' tables that figures look for, apart from what computes them, so that only that reruns."""

FLIP, HONEST = RULE_NAMES = ("flip", "honest")
FLIPS = "flips"  # share of examples whose verdict flips, in percent
ACCURACY, UNSURE, SUBJECT, LOGPROB = "accuracy", "unsure", "popularity", "logprob"  # what the boundary measures
EQUAL_LOGIT = "equal_logit"  # the stratum of a gap that is measured at equal clean logit
MEAN = "mean"  # the measure whose rows have the sample of saliency
