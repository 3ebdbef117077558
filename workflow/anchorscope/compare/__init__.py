"""A run beside the published figures, and beside another run."""
