"""Stage 7: figures."""
