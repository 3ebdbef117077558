"""Files on disk: atomic writes, sealed Parquet, hashes, the hub, logs."""
