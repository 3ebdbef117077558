"""Stage 6: estimates with intervals, simulations, and the claims."""
