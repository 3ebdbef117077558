"""Stage 5: cross-fitted probes, delta P, and the anchor of every example."""
