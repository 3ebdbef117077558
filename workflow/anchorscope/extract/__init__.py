"""Stage 5: from chosen answers to sequences, clean and knocked-out passes over them, and the activations on disk."""
