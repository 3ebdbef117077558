"""Stage 1: from published rows to questions with accepted answers and exact question words."""
