"""Permissioned Spaces: how a viewer's right to read one is proven, to us and to its authority."""
