"""What clients meet: each face serves the same index in the shapes of its own document."""
