"""Brings repos up to date from their hosts: asks, fetches whole repos, and finds those that nobody told of."""
