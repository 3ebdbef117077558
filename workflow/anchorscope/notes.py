"""What a reader must know before taking a figure for the published one."""


def note(bundled: list[str], random: list[str], window: int | None, not_probed: list[str]) -> str:
    """A line for bundled question sets, one for models with random weights, both by their titles, one for a windowed
    knockout and one for what could not be probed; empty without them."""
    lines = []
    if bundled:
        lines.append(f"{', '.join(bundled)}: questions bundled with Anchorscope, not the published datasets.")
    if random:
        lines.append(f"{', '.join(random)}: random weights; their numbers mean nothing about trained models.")
    if window is not None:
        lines.append(f"Windowed knockout: attention is cut in the last {window} layers up to the one plotted.")
    if not_probed:
        lines.append(f"Not probed, because the answers are too few or too one-sided: {', '.join(not_probed)}.")
    return "\n".join(lines)


def unprobed(about: dict, models: dict[str, str], datasets: dict[str, str]) -> list[str]:
    """Which of some models, on which of some datasets, the summary could not include; both by name and title."""
    pairs = [(model, dataset) for model, dataset, _ in about["not_probed"]]
    return [f"{models[model]} on {datasets[dataset]}" for model, dataset in pairs if model in models]


def random_models(about: dict) -> list[str]:
    """The names of the models with random weights, from the manifests in the summary's metadata."""
    return [name for name, manifest in about["models"].items() if manifest["weights"] == "random"]
