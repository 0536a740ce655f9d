"""The assistants' face: memories as the schema that assistants speak has them, below `/api/v1/llm/`."""
