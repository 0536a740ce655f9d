"""Statements that read the index, one typed function each; every one takes the Spaces that its viewer may read.

But for those that read nothing out of anybody's repo: `find_repos` (handles), `load_indexed_through` and
`load_repo_sync` (how far streams and public repos are followed), `load_page_cursor_key` (a secret of the index) and
`plan_anew` (a setting of the transaction).
"""
