"""What a reader must know before taking a figure for the published one."""

import polars as pl


def note(bundled: list[str], random: list[str]) -> str:
    """A line for bundled question sets and one for models with random weights, by their titles; empty without them."""
    lines = []
    if bundled:
        lines.append(f"{', '.join(bundled)}: questions bundled with Anchorscope, not the published datasets.")
    if random:
        lines.append(f"{', '.join(random)}: random weights; their numbers mean nothing about trained models.")
    return "\n".join(lines)


def random_models(summary: pl.DataFrame) -> list[str]:
    """The names of the models with random weights, as their manifests have told the summary."""
    return summary.filter(pl.col("weights") == "random")["model"].unique(maintain_order=True).to_list()
