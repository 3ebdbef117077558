"""Stage 6: probes, every example scored out of fold, delta P, and the anchor of every example."""
