"""Training data: the store, shards of it, readers that import other formats."""
