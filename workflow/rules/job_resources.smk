# What jobs ask a scheduler for: memory, GPUs and time.


def grows(amount):
    """What a job asks a scheduler for: the amount, and as much again with every retry."""
    return lambda wildcards, attempt: attempt * amount


def by_size(times):
    """The memory in MB of a job that holds so many times its inputs."""
    return lambda wildcards, input, attempt: attempt * max(4000, 2000 + int(times * input.size_mb))


def model_memory(wildcards, attempt):
    """The memory in MB that the config allows a model's jobs."""
    return attempt * int(1000 * own_settings(wildcards)["memory_gb"])


# What every job that runs a model asks a scheduler for.
MODEL_RESOURCES = {
    "mem_mb": model_memory,
    "gpu": lambda wildcards: own_settings(wildcards)["gpus"],
    "runtime": grows(240),
}
