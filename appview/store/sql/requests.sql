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

-- name: hold_access_token
-- Until when an access token holds; it is not revoked before the end of the transaction.
select expires_at from access_tokens where repo = :repo and id = :id and expires_at > :now for key share;

-- name: add_grant
-- A Space that may be read by an access token from now on, or for longer; unless that may read as many as may be. By the
-- database's clock, which says when Spaces are deleted, it was not granted later than now.
insert into grants (repo, token, space, granted_at, expires_at)
select
    :repo, :token::text, :space::text, least(:granted_at::timestamptz, clock_timestamp()), :expires_at::timestamptz
where (
    select count(*) from grants where repo = :repo and token = :token and space <> :space and expires_at > :granted_at
) < :at_most
on conflict (repo, token, space) do update set granted_at = excluded.granted_at, expires_at = excluded.expires_at;

-- name: put_credential
-- What reads a Space's repos for a grant, in place of what did before.
insert into credentials (repo, token, space, sealed, key_id, expires_at)
values (:repo, :token, :space, :sealed, :key_id, :expires_at)
on conflict (repo, token, space) do update set
    sealed = excluded.sealed, key_id = excluded.key_id, expires_at = excluded.expires_at;

-- name: put_opened
-- That a Space was opened, for the indexer to follow it.
insert into space_inbox (repo, space, kind)
values (:repo, :space, 'opened')
on conflict (repo, space, kind, author) do update set received_at = clock_timestamp();

-- name: delete_grant
-- A Space that an access token may read no more.
delete from grants where repo = :repo and token = :token and space = :space;

-- name: delete_credential
-- What read that Space for it.
delete from credentials where repo = :repo and token = :token and space = :space;

-- name: delete_grants_of_space
-- A Space that a viewer reads no more, by whatever access token.
delete from grants where repo = :repo and space = :space;

-- name: delete_credentials_of_space
-- What read that Space for them.
delete from credentials where repo = :repo and space = :space;

-- name: delete_grants_of_token
-- All that was granted to an access token.
delete from grants where repo = :repo and token = :token;

-- name: delete_credentials_of_token
-- What read Spaces for it.
delete from credentials where repo = :repo and token = :token;

-- name: put_written
-- Where an author's repo in a Space is said to stand, for the indexer to look; the last word counts. Of a Space that nobody
-- has opened here nothing is kept, nor of more authors than may wait.
insert into space_inbox (repo, space, kind, author, rev, hash)
select s.repo, s.space, 'written', :author::text, :rev::text, :hash::bytea
from spaces s
where s.repo = :repo and s.space = :space
    and (
        exists (
            select from space_inbox i where (i.repo, i.space, i.kind, i.author) = (:repo, :space, 'written', :author)
        )
        or (
            select count(*)
            from (
                select from space_inbox i where (i.repo, i.space, i.kind) = (:repo, :space, 'written') limit :at_most
            ) w
        ) < :at_most
    )
on conflict (repo, space, kind, author) do update set
    rev = excluded.rev, hash = excluded.hash, received_at = clock_timestamp();

-- name: put_deleted
-- That a Space was deleted, for the indexer to purge it, if somebody has opened it here, be it just now.
insert into space_inbox (repo, space, kind)
select :repo, :space::text, 'deleted'
where exists (select from spaces s where s.repo = :repo and s.space = :space)
    or exists (select from space_inbox i where (i.repo, i.space, i.kind) = (:repo, :space, 'opened'))
on conflict (repo, space, kind, author) do update set received_at = clock_timestamp();
