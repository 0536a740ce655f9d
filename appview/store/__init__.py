"""Statements that read the index, one typed function each; every one takes the Spaces that its viewer may read.

But for those that read nothing out of anybody's repo: `find_repos` (handles), `load_indexed_through`, `load_repo_sync`
and `load_repo_rev` (how far streams and public repos are followed), `load_page_cursor_key` and `load_id_key` (secrets
of the index), `load_model` (of embeddings), `plan_anew`, `plan_as_ever`, `share_snapshot` and `take_snapshot` (a
transaction's own matters); and what deals with tokens, by which a viewer is told: `is_token_kept`,
`list_access_tokens`, `use_service_token`, `add_access_token`, `delete_access_token`; what grants Spaces and tells of
them: `load_readable_spaces`, which makes what the others take, `list_grants`, `is_held`, `is_authority`, `hold_token`,
`add_grant`, `delete_grant`, `delete_grants_of_token`, `put_write`, `put_deletion`.
"""
