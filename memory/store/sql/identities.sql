-- name: load_identities
-- The cached identities of these DIDs.
select repo, handle, host, signing_key, tombstoned, resolved_at
from identities
where repo = any(:dids::text[]);

-- name: store_identities
-- Newer DID documents; an older one never replaces a newer. Sorted, so that two writers never wait in a circle.
insert into identities (repo, handle, host, signing_key, tombstoned, resolved_at)
select * from unnest(
    :dids::text[], :handles::text[], :hosts::text[], :signing_keys::text[], :tombstoned::boolean[],
    :resolved_ats::timestamptz[]
) as n (repo, handle, host, signing_key, tombstoned, resolved_at)
order by n.repo
on conflict (repo) do update set
    handle = excluded.handle, host = excluded.host, signing_key = excluded.signing_key,
    tombstoned = excluded.tombstoned, resolved_at = excluded.resolved_at
where identities.resolved_at < excluded.resolved_at;
