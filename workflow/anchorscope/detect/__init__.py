"""Detecting hallucinations: methods side by side on the same examples and folds, and a detector to take away."""
