"""The read side: answers questions about memories from Postgres, and writes nothing that the indexer owns."""
