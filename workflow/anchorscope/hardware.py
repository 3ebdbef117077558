"""What this machine has, asked without loading a deep-learning library."""

from pathlib import Path


def has_gpu() -> bool:
    """Whether an NVIDIA card is visible to this process."""
    return Path("/dev/nvidia0").exists()
