-- All that the API writes, but for identities: what its callers ask for. Nothing else in this folder changes anything.

-- name: use_service_token
-- A service-auth token is good once for a procedure: no row is inserted for one that was used before.
insert into seen_tokens (repo, jti_sha256, expires_at)
values (:repo, :jti_sha256, :expires_at)
on conflict do nothing;

-- name: lock_access_tokens
-- One at a time makes access tokens for a viewer, so that they can be counted. Until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('access_tokens ' || :repo::text, 0));

-- name: add_access_token
-- A new access token, unless its viewer has as many as may be.
insert into access_tokens (repo, id, token_sha256, name, created_at, expires_at)
select :repo, :id::text, :token_sha256::bytea, :name::text, :created_at::timestamptz, :expires_at::timestamptz
where (select count(*) from access_tokens where repo = :repo and expires_at > :created_at) < :at_most;

-- name: delete_access_token
-- An access token that its viewer revokes.
delete from access_tokens where repo = :repo and id = :id;
