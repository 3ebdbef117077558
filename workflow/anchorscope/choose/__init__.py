"""Stage 4: which answers are analysed."""
