"""The names of the square of four accounts, for those who read its tables."""

TAILS = ("normal", "student")
# What each gain compares: the account that gains, then the other, as (two kinds, degrees).
COMPARED = {
    "kinds": ((True, True), (False, True)),
    "degrees": ((False, True), (False, False)),
    "kinds_without_degrees": ((True, False), (False, False)),
    "degrees_within_kinds": ((True, True), (True, False)),
}
EVERYONE = "all"  # examples
