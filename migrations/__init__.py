"""The schema's history, plain SQL and forward only, in `sql/`; `schema.sql` shows what it amounts to."""
