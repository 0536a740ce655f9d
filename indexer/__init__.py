"""What writes: follows sources, verifies what they send, and keeps Postgres true to the network."""
