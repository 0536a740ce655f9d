-- Repos as memory stores. A list is asked for the places of a page first, then for what stands there. The hashes of ids are
-- those of the indexes `repos_by_id`, `repos_in_space_by_id` and `memory_versions_by_memory_id`, word by word.

-- name: id_key
-- The key of ids of what is not public, unless the operator sets one.
select value from settings where name = 'id_key';

-- name: public_stores_after
-- Public stores, newest first, behind a place. Archived are those whose account is deactivated; other hidden ones are none,
-- nor is what nothing is known of: never indexed, or taken down.
select r.first_indexed_at, r.repo, r.space
from repos r
where r.space = ''
    and (r.first_indexed_at, r.repo, r.space) < (:sort_at::timestamptz, :at_repo::text, :at_space::text)
    and r.first_indexed_at between :oldest::timestamptz and :newest::timestamptz
    and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
    and (r.data_cid is not null or r.memory_count > 0)
    and (
        :name_prefix::text is null
        or starts_with(
            lower(coalesce((select i.handle from identities i where i.repo = r.repo and not i.tombstoned), r.repo)),
            :name_prefix
        )
    )
order by r.first_indexed_at desc, r.repo desc
limit :limit::int;

-- name: public_stores_before
-- The same in front of a place, from there on.
select r.first_indexed_at, r.repo, r.space
from repos r
where r.space = ''
    and (r.first_indexed_at, r.repo, r.space) > (:sort_at::timestamptz, :at_repo::text, :at_space::text)
    and r.first_indexed_at between :oldest::timestamptz and :newest::timestamptz
    and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
    and (r.data_cid is not null or r.memory_count > 0)
    and (
        :name_prefix::text is null
        or starts_with(
            lower(coalesce((select i.handle from identities i where i.repo = r.repo and not i.tombstoned), r.repo)),
            :name_prefix
        )
    )
order by r.first_indexed_at, r.repo
limit :limit::int;

-- name: space_stores_after
-- Stores of readable Spaces, newest first, behind a place.
select r.first_indexed_at, r.repo, r.space
from (select distinct s.space from unnest(:spaces::text[]) as s (space)) s
cross join lateral (
    select r.first_indexed_at, r.repo, r.space
    from repos r
    where r.space = s.space and r.space <> ''
        and (r.first_indexed_at, r.repo, r.space) < (:sort_at::timestamptz, :at_repo::text, :at_space::text)
        and r.first_indexed_at between :oldest::timestamptz and :newest::timestamptz
        and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
        and (
            :name_prefix::text is null
            or starts_with(
                lower(
                    coalesce((select i.handle from identities i where i.repo = r.repo and not i.tombstoned), r.repo)
                    || '/' || substring(r.space from '[^/]*$')
                ),
                :name_prefix
            )
        )
    order by r.first_indexed_at desc, r.repo desc
    limit :limit::int
) r
order by r.first_indexed_at desc, r.repo desc, r.space desc
limit :limit;

-- name: space_stores_before
-- The same in front of a place, from there on.
select r.first_indexed_at, r.repo, r.space
from (select distinct s.space from unnest(:spaces::text[]) as s (space)) s
cross join lateral (
    select r.first_indexed_at, r.repo, r.space
    from repos r
    where r.space = s.space and r.space <> ''
        and (r.first_indexed_at, r.repo, r.space) > (:sort_at::timestamptz, :at_repo::text, :at_space::text)
        and r.first_indexed_at between :oldest::timestamptz and :newest::timestamptz
        and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
        and (
            :name_prefix::text is null
            or starts_with(
                lower(
                    coalesce((select i.handle from identities i where i.repo = r.repo and not i.tombstoned), r.repo)
                    || '/' || substring(r.space from '[^/]*$')
                ),
                :name_prefix
            )
        )
    order by r.first_indexed_at, r.repo
    limit :limit::int
) r
order by r.first_indexed_at, r.repo, r.space
limit :limit;

-- name: repos_by_name
-- Whose handle or DID begins so, if they are not very many: a name that few have is found without going through all stores.
(
    select i.repo
    from identities i
    where i.handle >= :name_prefix::text and i.handle < :name_end::text and not i.tombstoned
    limit :limit::int
)
union all
(
    select r.repo
    from repos r
    where lower(r.repo) >= :name_prefix and lower(r.repo) < :name_end
        and (r.visible or r.status = 'deactivated')
        and (r.space = '' or r.space = any(:spaces::text[]))
    limit :limit
);

-- name: stores_of_repos
-- All stores of some authors that pass the filters.
select r.first_indexed_at, r.repo, r.space
from repos r
where r.repo = any(:repos::text[])
    and (r.space = '' or r.space = any(:spaces::text[]))
    and r.first_indexed_at between :oldest::timestamptz and :newest::timestamptz
    and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
    and (r.space <> '' or r.data_cid is not null or r.memory_count > 0)
    and starts_with(
        lower(
            coalesce((select i.handle from identities i where i.repo = r.repo and not i.tombstoned), r.repo)
            || case when r.space = '' then '' else '/' || substring(r.space from '[^/]*$') end
        ),
        :name_prefix::text
    );

-- name: store_place_by_id
-- The place of one store, whose id is read as of a public one and as of one in a Space. Each has an index of its own, of
-- which no part is gone through for a Space that may not be read.
select r.first_indexed_at, r.repo, r.space
from repos r
where (
        (
            r.space = '' and substring(sha256(('at://' || r.repo)::bytea) for 16) = :public_hash::bytea
        )
        or (
            r.space = any(:spaces::text[]) and r.space <> ''
            and substring(sha256((r.space || '/' || r.repo)::bytea) for 16) = :space_hash::bytea
        )
    )
    and (r.visible or (:include_archived::bool and r.status = 'deactivated'))
    and r.first_indexed_at is not null
    and (r.space <> '' or r.data_cid is not null or r.memory_count > 0);

-- name: stores_by_key
-- What there is to tell of stores that were chosen before, in the order that they were asked for.
select
    k.ordinal, r.repo, r.space, i.handle, r.first_indexed_at, r.visible, r.status_changed_at, latest.observed_at,
    case when r.visible then r.entry_count else 0 end as entry_count,
    case when r.visible then r.entry_bytes else 0 end as entry_bytes
from unnest(:repos::text[], :spaces_of::text[]) with ordinality as k (repo, space, ordinal)
cross join lateral (
    select * from repos r where r.repo = k.repo and r.space = k.space
    offset 0 -- here and below: whatever the planner believes of repos, go to this one
) r
left join identities i on i.repo = r.repo and not i.tombstoned
left join lateral (
    select v.observed_at
    from memory_versions v
    where v.repo = r.repo and v.space = r.space
    order by v.observed_at desc, v.rkey desc, v.number desc
    limit 1
) latest on true
where (r.space = '' or r.space = any(:spaces::text[]))
    and (r.visible or r.status = 'deactivated')
order by k.ordinal;

-- name: entries_after
-- Memories of one store, latest in effect first, behind a place.
select m.effective_at, m.rkey
from memories m
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.repo = :repo::text and m.space = :space::text
    and (m.space = '' or m.space = any(:spaces::text[]))
    and (m.effective_at, m.rkey) < (:sort_at::timestamptz, :at_rkey::text)
    and (:include_superseded::bool or m.masked_from is null)
    and (
        :path_prefix::text is null
        or starts_with(coalesce(nullif(m.scope, ''), 'default') || '/' || m.rkey, :path_prefix)
    )
order by m.effective_at desc, m.rkey desc
limit :limit::int;

-- name: entries_before
-- The same in front of a place, from there on.
select m.effective_at, m.rkey
from memories m
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.repo = :repo::text and m.space = :space::text
    and (m.space = '' or m.space = any(:spaces::text[]))
    and (m.effective_at, m.rkey) > (:sort_at::timestamptz, :at_rkey::text)
    and (:include_superseded::bool or m.masked_from is null)
    and (
        :path_prefix::text is null
        or starts_with(coalesce(nullif(m.scope, ''), 'default') || '/' || m.rkey, :path_prefix)
    )
order by m.effective_at, m.rkey
limit :limit::int;

-- name: memory_place_by_id
-- The rkey behind a memory's id, also of one that was deleted; `effective_at` only of one that is there.
select v.rkey, m.effective_at
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
left join memories m on m.repo = v.repo and m.space = v.space and m.rkey = v.rkey
where v.repo = :repo::text and v.space = :space::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and substring(sha256((
        case when v.space = '' then 'at://' || v.repo else v.space || '/' || v.repo end
        || '/dev.bastienrobert.memory.record/' || v.rkey
    )::bytea) for 16) = :hash::bytea
    and v.number = 1;

-- name: entries_by_key
-- What there is to tell of memories of one store, in the order that they were asked for. Ends, by a null cid, before what
-- would take more than :max_bytes, but never with the first. Blocks only if they are wanted.
select
    m.ordinal, m.rkey, m.scope, m.agent, m.created_at, m.updated_at, m.version, m.content_bytes, v.content_sha256,
    m.masked_from is not null as superseded,
    case when m.fits then m.cid end as cid,
    case when m.fits then m.kind end as kind,
    case when m.fits and :with_record::bool then m.record end as record
from (
    select m.*, k.ordinal,
        coalesce(
            sum(octet_length(coalesce(m.kind, ''))) over (order by k.ordinal rows unbounded preceding) <= :max_bytes::bigint
            or k.ordinal = min(k.ordinal) over (), true
        ) as fits
    from unnest(:rkeys::text[]) with ordinality as k (rkey, ordinal)
    cross join lateral (
        select * from memories m where m.repo = :repo::text and m.space = :space::text and m.rkey = k.rkey
        offset 0
    ) m
) m
join repos r on r.repo = m.repo and r.space = m.space and r.visible
cross join lateral (
    select v.content_sha256
    from memory_versions v
    where v.repo = m.repo and v.space = m.space and v.rkey = m.rkey and v.number = m.version
    offset 0
) v
where m.space = '' or m.space = any(:spaces::text[])
order by m.ordinal;

-- name: versions_after
-- Versions of one store, latest observed first, behind a place.
select v.observed_at, v.rkey, v.number
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
where v.repo = :repo::text and v.space = :space::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and (v.observed_at, v.rkey, v.number) < (:sort_at::timestamptz, :at_rkey::text, :at_number::int)
order by v.observed_at desc, v.rkey desc, v.number desc
limit :limit::int;

-- name: versions_before
-- The same in front of a place, from there on.
select v.observed_at, v.rkey, v.number
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
where v.repo = :repo::text and v.space = :space::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and (v.observed_at, v.rkey, v.number) > (:sort_at::timestamptz, :at_rkey::text, :at_number::int)
order by v.observed_at, v.rkey, v.number
limit :limit::int;

-- name: memory_versions_after
-- Versions of one memory, there or deleted, latest first, behind a number.
select v.observed_at, v.rkey, v.number
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
where v.repo = :repo::text and v.space = :space::text and v.rkey = :rkey::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and v.number < :at_number::int
order by v.number desc
limit :limit::int;

-- name: memory_versions_before
-- The same in front of a number, from there on.
select v.observed_at, v.rkey, v.number
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
where v.repo = :repo::text and v.space = :space::text and v.rkey = :rkey::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and v.number > :at_number::int
order by v.number
limit :limit::int;

-- name: version_place_by_id
-- The place of the version with this id.
select v.observed_at, v.rkey, v.number
from memory_versions v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
where v.repo = :repo::text and v.space = :space::text
    and (v.space = '' or v.space = any(:spaces::text[]))
    and v.id_hash = :hash::bytea;

-- name: versions_by_key
-- What there is to tell of versions of one store, in the order that they were asked for. What was overwritten shows its
-- content to the repo's owner, while it is kept, and nothing of it to anybody else. Blocks only if they are wanted.
select
    k.ordinal, v.rkey, v.number, v.id_hash, v.operation, v.observed_at,
    case when state.shown then v.scope end as scope,
    case when state.shown then v.content_bytes else 0 end as content_bytes,
    case when state.shown then v.content_sha256 else sha256('') end as content_sha256,
    case when not state.shown then coalesce(v.redacted_at, v.overwritten_at, v.observed_at) end as redacted_at,
    case when not (state.shown and :with_record::bool) then null when m.version = v.number then m.record else v.record end as record
from unnest(:rkeys::text[], :numbers::int[]) with ordinality as k (rkey, number, ordinal)
cross join lateral (
    select *
    from memory_versions v
    where v.repo = :repo::text and v.space = :space::text and v.rkey = k.rkey and v.number = k.number
    offset 0
) v
join repos r on r.repo = v.repo and r.space = v.space and r.visible
left join lateral (
    select m.version, m.record from memories m where m.repo = v.repo and m.space = v.space and m.rkey = v.rkey
    offset 0
) m on true
cross join lateral (
    select coalesce(m.version = v.number, false)
        or (:is_owner::bool and v.redacted_at is null and v.record is not null) as shown
) state
where v.space = '' or v.space = any(:spaces::text[])
order by k.ordinal;
