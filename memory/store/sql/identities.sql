-- name: load_identities
-- The cached identities of these DIDs.
select repo, handle, host, signing_key, tombstoned, resolved_at
from identities
where repo = any(:dids::text[]);

-- name: store_identities
-- Newer DID documents; an older one never replaces a newer. Sorted, so that two writers never wait in a circle.
insert into identities (
    repo, handle, host, signing_key, tombstoned, resolved_at, handle_retry_at, handle_misses
)
select * from unnest(
    :dids::text[], :handles::text[], :hosts::text[], :signing_keys::text[], :tombstoned::boolean[],
    :resolved_ats::timestamptz[], :handle_retry_ats::timestamptz[], :handle_misses::smallint[]
) as n (repo, handle, host, signing_key, tombstoned, resolved_at, handle_retry_at, handle_misses)
order by n.repo
on conflict (repo) do update set
    handle = excluded.handle, host = excluded.host, signing_key = excluded.signing_key,
    tombstoned = excluded.tombstoned, resolved_at = excluded.resolved_at,
    handle_retry_at = excluded.handle_retry_at, handle_misses = excluded.handle_misses
where identities.resolved_at < excluded.resolved_at;

-- name: held_handle
-- The handle that was last verified, and how often its side could not be asked since.
select handle, handle_misses from identities where repo = :did;
