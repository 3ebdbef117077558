"""Stage 3: prompts, greedy answers, and their grades."""
