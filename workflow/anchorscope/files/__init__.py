"""Files on disk: atomic writes, sealed Parquet, hashes, downloads from the hub, and logs."""
