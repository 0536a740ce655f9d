-- name: load_identities
-- The cached identities of these DIDs.
select repo, handle, host, signing_key, tombstoned, resolved_at
from identities
where repo = any(:dids::text[]);

-- name: store_identity
-- An identity that was looked up; an older one never replaces a newer.
insert into identities (repo, handle, host, signing_key, tombstoned, resolved_at)
values (:did, :handle, :host, :signing_key, :tombstoned, :resolved_at)
on conflict (repo) do update set
    handle = excluded.handle, host = excluded.host, signing_key = excluded.signing_key,
    tombstoned = excluded.tombstoned, resolved_at = excluded.resolved_at
where identities.resolved_at < excluded.resolved_at;
