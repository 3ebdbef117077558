"""Stage 8: the report, one self-contained page."""
