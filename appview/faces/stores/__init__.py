"""Repos as memory stores, for agent platforms: stores, memories and their versions as JSON objects, read only."""
