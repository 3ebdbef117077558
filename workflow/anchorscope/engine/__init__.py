"""Runs models. What is wanted of one is described in the words of `work`, and goes through `door`."""
