"""What a memory is, and what both deployables stand on. Imports nothing of `indexer` or `appview`."""
