"""Stage 8: figures."""
