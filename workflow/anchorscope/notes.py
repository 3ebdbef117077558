"""What a reader must know before taking a figure for the published one."""

import polars as pl


def note(bundled: list[str], random: list[str], window: int | None) -> str:
    """A line for bundled question sets, one for models with random weights, both by their titles, and one for a
    windowed knockout; empty without them."""
    lines = []
    if bundled:
        lines.append(f"{', '.join(bundled)}: questions bundled with Anchorscope, not the published datasets.")
    if random:
        lines.append(f"{', '.join(random)}: random weights; their numbers mean nothing about trained models.")
    if window is not None:
        lines.append(f"Windowed knockout: attention is cut in the last {window} layers up to the one plotted.")
    return "\n".join(lines)


def random_models(summary: pl.DataFrame) -> list[str]:
    """The names of the models with random weights, as their manifests have told the summary."""
    return summary.filter(pl.col("weights") == "random")["model"].unique(maintain_order=True).to_list()
