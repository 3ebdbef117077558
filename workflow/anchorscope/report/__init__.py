"""Stage 9: the report, one self-contained page."""
