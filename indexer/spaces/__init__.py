"""Keeps what is held of Spaces true to their hosts, and deletes what is no more."""
