"""Stage 2: from a source in the config to a manifest, a model in memory, and the GPUs it runs on."""
