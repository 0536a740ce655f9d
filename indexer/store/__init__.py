"""The indexer's SQL: one typed function a statement, all of them run inside the writer's transaction."""
