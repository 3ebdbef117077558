"""Stage 3: prompts, greedy generation, and graded answers."""
