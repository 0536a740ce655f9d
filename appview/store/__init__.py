"""Statements that read the index, one typed function each; every one takes the Spaces that its viewer may read."""
