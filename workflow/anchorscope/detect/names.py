"""The methods that are compared, by what they read, in the order of all tables."""

ANSWER_LENGTH, QUESTION_WORDS, ANSWER_WORDS, BOTH_WORDS = TEXT = (
    "answer_length",
    "question_words",
    "answer_words",
    "both_words",
)
MEAN_LOGPROB, MIN_LOGPROB, SUM_LOGPROB, MEAN_ENTROPY, MAX_ENTROPY = TOKENS = (
    "mean_logprob",
    "min_logprob",
    "sum_logprob",
    "mean_entropy",
    "max_entropy",
)
WITHOUT_STOP = tuple(f"answer_{name}" for name in TOKENS)  # of the answer's text alone
P_TRUE, CONFIDENCE = "p_true", "confidence"
OUTPUT = (*TOKENS, *WITHOUT_STOP, P_TRUE, CONFIDENCE)
AGREEMENT, CLUSTER_ENTROPY, LEXICAL_SPREAD = SAMPLES = ("agreement", "cluster_entropy", "lexical_spread")
PROBE, MEAN_DIFFERENCE, SAPLMA, QUESTION_PROBE, BEST_LAYER = ONE_LAYER = (
    "probe",
    "mean_difference",
    "saplma",
    "question_probe",
    "best_layer",
)
MEAN_LOGIT, STACKED = MANY_LAYERS = ("mean_logit", "stacked")
(
    MOP,
    MOP_HONEST,
    MOP_RANDOM_GATE,
    MOP_LOGIT_GATE,
    MOP_RANDOM_EXPERTS,
    ENSEMBLE,
    PR,
    PR_HONEST,
) = PATHWAYS = (
    "mop",
    "mop_honest",
    "mop_random_gate",
    "mop_logit_gate",
    "mop_random_experts",
    "ensemble",
    "pr",
    "pr_honest",
)
KINDS = {
    "text": TEXT,
    "output": OUTPUT,
    "samples": SAMPLES,
    "one_layer": ONE_LAYER,
    "many_layers": MANY_LAYERS,
    "pathways": PATHWAYS,
}
METHODS = tuple(name for names in KINDS.values() for name in names)
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names}

OTHERS = "others"  # in the table of transfer: trained on all datasets but the tested one

# The gates of Pathway Reweighting: trained on the anchors of the first prompt, as published, or of the second.
PUBLISHED, HONEST = GATES = ("published", "honest")
AMOUNTS = (0.0, 0.25, 0.5, 1.0, 2.0)  # of reweighting, among which inner folds choose; 0 changes nothing
SHIFTS = tuple((gate, amount) for gate in GATES for amount in AMOUNTS if amount)  # what changes something


def layer_read(layers: int) -> int:
    """The layer that all methods of one layer read: the middle one, which no label has chosen."""
    return layers // 2
