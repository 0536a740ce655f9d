-- name: memories_by_key
-- What views show of memories that were chosen before, in the order that they were asked for. Blocks beyond :max_bytes in
-- all are left out (null), but never the first. As of :as_of, only records in effect by then replace or are replaced.
-- It is asked thousands of times a second: whatever the values are, the plan costs the same, so Postgres plans it once.
with asked as (
    select
        k.ordinal, m.repo, m.space, m.rkey, m.cid, m.record, m.updated_at, m.indexed_at, m.version, m.component,
        m.masked_from, m.masked_spans,
        coalesce(
            sum(octet_length(m.record)) over (order by k.ordinal rows between unbounded preceding and 1 preceding), 0
        ) as bytes_before
    from unnest(
        (select :repos::text[]), (select :spaces_of::text[]), (select :rkeys::text[])
    ) with ordinality as k (repo, space, rkey, ordinal)
    cross join lateral (
        select * from memories m where m.repo = k.repo and m.space = k.space and m.rkey = k.rkey
        offset 0 -- here and below: whatever the planner believes of repos, go to one memory and its edges
    ) m
    join repos r on r.repo = m.repo and r.space = m.space and r.visible
    where m.space = '' or m.space = any(:spaces::text[])
)
select
    a.ordinal, a.repo, a.space, a.rkey, a.cid, a.updated_at, a.indexed_at, a.version,
    case when a.bytes_before = 0 or a.bytes_before + octet_length(a.record) <= :max_bytes::bigint then a.record end as record,
    case
        when :as_of::timestamptz is null or a.masked_spans is null
            then a.masked_from is not null and (:as_of is null or a.masked_from <= :as_of)
        else a.masked_spans @> :as_of
    end as superseded,
    case when a.masked_spans is not null then a.component end as component,
    i.handle,
    replacers.rkeys as replacers,
    replacers.ignored as ignored_replacers,
    targets.rkeys as targets,
    targets.ignored as ignored_targets
from asked a
left join identities i on i.repo = a.repo and not i.tombstoned
cross join lateral (
    select array_agg(e.rkey) as rkeys, array_agg(e.rkey) filter (where e.ignored) as ignored
    from (
        select e.rkey, e.ignored
        from (
            select e.rkey, e.ignored
            from memory_edges e
            where e.repo = a.repo and e.space = a.space and e.target = a.rkey
            offset 0
        ) e
        cross join lateral (
            select s.effective_at from memories s where s.repo = a.repo and s.space = a.space and s.rkey = e.rkey
            offset 0
        ) s
        where s.effective_at <= coalesce(:as_of::timestamptz, 'infinity')
        order by e.rkey
        limit :max_replacers::int
    ) e
) replacers
cross join lateral (
    select array_agg(e.target) as rkeys, array_agg(e.target) filter (where e.ignored) as ignored
    from (
        select e.target, e.ignored
        from memory_edges e
        where e.repo = a.repo and e.space = a.space and e.rkey = a.rkey
        offset 0
    ) e
    cross join lateral (
        select t.effective_at from memories t where t.repo = a.repo and t.space = a.space and t.rkey = e.target
        offset 0
    ) t
    where t.effective_at <= coalesce(:as_of::timestamptz, 'infinity')
) targets
order by a.ordinal;

-- name: memory_by_key
-- The same of one memory as it is now. It is what is asked most, and costs half of what the statement for many does.
select
    m.repo, m.space, m.rkey, m.cid, m.record, m.updated_at, m.indexed_at, m.version,
    m.masked_from is not null as superseded,
    i.handle,
    replacers.rkeys as replacers,
    replacers.ignored as ignored_replacers,
    targets.rkeys as targets,
    targets.ignored as ignored_targets
from memories m
join repos r on r.repo = m.repo and r.space = m.space and r.visible
left join identities i on i.repo = m.repo and not i.tombstoned
cross join lateral (
    select array_agg(e.rkey) as rkeys, array_agg(e.rkey) filter (where e.ignored) as ignored
    from (
        select e.rkey, e.ignored
        from memory_edges e
        where e.repo = m.repo and e.space = m.space and e.target = m.rkey
            and exists (select from memories s where s.repo = m.repo and s.space = m.space and s.rkey = e.rkey)
        order by e.rkey
        limit :max_replacers::int
    ) e
) replacers
cross join lateral (
    select array_agg(e.target) as rkeys, array_agg(e.target) filter (where e.ignored) as ignored
    from memory_edges e
    where e.repo = m.repo and e.space = m.space and e.rkey = m.rkey
        and exists (select from memories t where t.repo = m.repo and t.space = m.space and t.rkey = e.target)
) targets
where m.repo = :repo::text and m.space = :space::text and m.rkey = :rkey::text
    and (m.space = '' or m.space = any(:spaces::text[]));

-- name: component_members
-- The members of cycles by their components' newest rkeys, with what they replace: to judge a cycle as of another time.
select
    m.repo, m.space, m.rkey, m.created_at, m.updated_at, m.effective_at,
    array(
        select e.target from memory_edges e where e.repo = m.repo and e.space = m.space and e.rkey = m.rkey
    ) as targets
from unnest(:repos::text[], :spaces_of::text[], :components::text[]) as c (repo, space, component)
join memories m on m.repo = c.repo and m.space = c.space and m.component = c.component
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.component is not null and m.masked_spans is not null and m.effective_at <= :as_of::timestamptz
    and (m.space = '' or m.space = any(:spaces::text[]));
