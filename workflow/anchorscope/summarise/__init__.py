"""Stage 7: estimates with intervals, simulations, and the claims."""
