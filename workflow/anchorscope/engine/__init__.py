"""The packed forward pass that the answer and extract stages share: trees, their attention, and batches of them."""
