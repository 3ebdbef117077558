"""The packed forward pass that answering and extraction share."""
