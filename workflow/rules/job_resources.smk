# What jobs ask a scheduler for: memory, GPUs and time.


def grows(amount):
    """What a job asks a scheduler for: the amount, and as much again with every retry."""
    return lambda wildcards, attempt: attempt * amount


def by_size(times):
    """The memory in MB of a job that holds so many times its inputs."""
    return lambda wildcards, input, attempt: attempt * max(4000, 2000 + int(times * input.size_mb))


def probed_at_once(size_mb):
    """How much of the activations is in memory: one component and position, or for a GPU several."""
    one = size_mb / len(PLACES)
    return max(one, min(size_mb, 6000)) if gpu_count() else one


def model_memory(wildcards, attempt):
    """The memory in MB that the config allows a model's jobs."""
    return attempt * int(1000 * own_settings(wildcards)["memory_gb"])


# What every job that runs a model asks a scheduler for.
MODEL_RESOURCES = {
    "mem_mb": model_memory,
    "gpu": lambda wildcards: own_settings(wildcards)["gpus"],
    "runtime": grows(240),
}
