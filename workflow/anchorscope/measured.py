"""What is measured of every example: which activations, at which tokens, in which passes."""

COMPONENTS = ("resid", "attn", "mlp")
POSITIONS = ("answer_last", "final", "before_answer")
# Every (prompt, intervention) that is run. `replicate` needs clean and exact_question once more.
PASSES = [
    ("first", "clean"),
    ("first", "exact_question"),
    ("first", "random_question"),
    ("second", "clean"),
    ("second", "exact_question"),
]
# The interventions whose effect is measured.
MEASURED = tuple(intervention for prompt, intervention in PASSES if prompt == "first" and intervention != "clean")
