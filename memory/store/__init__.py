"""The rows that both deployables read and write."""
