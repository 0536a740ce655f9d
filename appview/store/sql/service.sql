-- name: page_cursor_key
-- The key that authenticates page cursors, shared by all API processes.
select value from settings where name = 'page_cursor_key';

-- name: repo_rev
-- How far one author's public repo is indexed.
select rev from repos where repo = :repo and space = '' and visible;

-- name: plan_anew
-- A plan made for other values can be a hundred times slower than one made for these. Until the end of the transaction.
select set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: plan_as_ever
-- Ends `plan_anew`: Postgres keeps plans again, as it sees fit.
select set_config('plan_cache_mode', 'auto', true);

-- name: export_snapshot
-- What this transaction sees, for other sessions, while it lasts.
select pg_export_snapshot();
