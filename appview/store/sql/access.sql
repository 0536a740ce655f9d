-- name: access_token
-- What is kept of one access token. Nothing but its key is asked for, so that no other index can be taken for better.
select token_sha256, expires_at from access_tokens where repo = :repo and id = :id;

-- name: access_tokens_of
-- The access tokens of one viewer, the newest first.
select id, name, created_at, expires_at
from access_tokens
where repo = :repo and expires_at > :now
order by created_at desc, id
limit :at_most;
