"""Stage 4: from answers to sequences, clean and knocked-out passes over them, and the activations on disk."""
