-- name: observed_versions
-- The states of one record that were seen, latest first. What was overwritten or deleted shows nothing of its content; only
-- to the repo's owner, what was overwritten does while it is kept. Blocks are of that only; those beyond :max_bytes in all are
-- left out (null, while `kept_bytes` is not), but never the first.
select
    v.number, v.operation, v.observed_at, v.is_current, v.redacted_at, v.cid, v.scope, v.content_bytes, v.content_sha256,
    v.kept_bytes,
    case when v.bytes_before = 0 or v.bytes_before + v.kept_bytes <= :max_bytes::bigint then v.record end as record
from (
    select
        v.number, v.operation, v.observed_at, state.is_current,
        case when not shown.shown then coalesce(v.redacted_at, v.overwritten_at, v.observed_at) end as redacted_at,
        case when shown.shown then v.cid end as cid,
        case when shown.shown then v.scope end as scope,
        case when shown.shown then v.content_bytes else 0 end as content_bytes,
        case when shown.shown then v.content_sha256 else sha256('') end as content_sha256,
        case when state.is_kept then v.record end as record,
        case when state.is_kept then octet_length(v.record) end as kept_bytes,
        coalesce(
            sum(octet_length(v.record)) filter (where state.is_kept)
                over (order by v.number desc rows between unbounded preceding and 1 preceding), 0
        ) as bytes_before
    from (
        select *
        from memory_versions v
        where v.repo = :repo::text and v.space = :space::text and v.rkey = :rkey::text
            and (v.space = '' or v.space = any(:spaces::text[]))
            and v.number < :before::int
        order by v.number desc
        limit :limit::int
    ) v
    join repos r on r.repo = v.repo and r.space = v.space and r.visible
    left join memories m on m.repo = v.repo and m.space = v.space and m.rkey = v.rkey
    cross join lateral (
        select
            coalesce(m.version = v.number, false) as is_current,
            :is_owner::bool and m.version is distinct from v.number and v.redacted_at is null and v.record is not null
                as is_kept
    ) state
    cross join lateral (select state.is_current or state.is_kept as shown) shown
) v
order by v.number desc;

-- name: replaced_memories
-- What one memory masks, directly or through others, latest in effect first. The walk goes breadth first and stops at
-- :max_walked, `walked` says how far it came.
with recursive walk (rkey) as (
    select :rkey::text collate "C"
    union
    select t.rkey
    from walk w
    cross join lateral (
        select e.target
        from memory_edges e
        where e.repo = :repo::text and e.space = :space::text and e.rkey = w.rkey and not e.ignored
        offset 0 -- so that only the edges of one memory are read, not all of the repo
    ) e
    join memories t on t.repo = :repo and t.space = :space and t.rkey = e.target
),
reached as (
    select w.rkey from walk w limit :max_walked::int
)
select m.rkey, m.effective_at, (select count(*) from reached) as walked
from reached w
join memories m on m.repo = :repo and m.space = :space and m.rkey = w.rkey
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.rkey <> :rkey
    and (m.space = '' or m.space = any(:spaces::text[]))
    and (m.effective_at, m.rkey) < (:sort_at::timestamptz, :at_rkey::text)
order by m.effective_at desc, m.rkey desc
limit :limit::int;

-- name: replacing_memories
-- What masks one memory, directly or through others, earliest in effect first. Walks as `replaced_memories` does.
with recursive walk (rkey) as (
    select :rkey::text collate "C"
    union
    select s.rkey
    from walk w
    cross join lateral (
        select e.rkey
        from memory_edges e
        where e.repo = :repo::text and e.space = :space::text and e.target = w.rkey and not e.ignored
        offset 0 -- so that only the edges of one memory are read, not all of the repo
    ) e
    join memories s on s.repo = :repo and s.space = :space and s.rkey = e.rkey
),
reached as (
    select w.rkey from walk w limit :max_walked::int
)
select m.rkey, m.effective_at, (select count(*) from reached) as walked
from reached w
join memories m on m.repo = :repo and m.space = :space and m.rkey = w.rkey
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.rkey <> :rkey
    and (m.space = '' or m.space = any(:spaces::text[]))
    and (m.effective_at, m.rkey) > (:sort_at::timestamptz, :at_rkey::text)
order by m.effective_at, m.rkey
limit :limit::int;
