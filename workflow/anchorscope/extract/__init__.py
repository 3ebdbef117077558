"""Stage 4: clean and knocked-out passes, and the activations that are kept."""
