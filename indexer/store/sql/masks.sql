-- name: flag_upward_edges
-- Keeps `upward` true to the order keys of both ends, for the edges that begin or end at these records.
update memory_edges e set upward = n.upward
from (
    select e.repo, e.space, e.rkey, e.target,
        coalesce((coalesce(t.updated_at, t.created_at), t.rkey) > (coalesce(s.updated_at, s.created_at), s.rkey), false)
            as upward
    from (
        select e.* from unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey)
        join memory_edges e on (e.repo, e.space, e.rkey) = (k.repo, k.space, k.rkey)
        union
        select e.* from unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey)
        join memory_edges e on (e.repo, e.space, e.target) = (k.repo, k.space, k.rkey)
    ) e
    join memories s on (s.repo, s.space, s.rkey) = (e.repo, e.space, e.rkey)
    left join memories t on (t.repo, t.space, t.rkey) = (e.repo, e.space, e.target)
) n
where (e.repo, e.space, e.rkey, e.target) = (n.repo, n.space, n.rkey, n.target) and e.upward <> n.upward;

-- name: repos_with_upward_edges
-- Only these can hold a cycle.
select r.repo, r.space
from unnest(:repos::text[], :spaces::text[]) as r (repo, space)
where exists (select from memory_edges e where e.repo = r.repo and e.space = r.space and e.upward);

-- name: mask_plainly
-- Masks outside cycles: the earliest effective time of a replacer. What enters or leaves view enters or leaves the counts.
with judged as (
    select k.repo, k.space, k.rkey, min(s.effective_at) as masked_from
    from unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey)
    left join memory_edges e on (e.repo, e.space, e.target) = (k.repo, k.space, k.rkey)
    left join memories s on (s.repo, s.space, s.rkey) = (e.repo, e.space, e.rkey)
    group by k.repo, k.space, k.rkey
), turned as (
    select m.repo, m.space,
        sum(case when n.masked_from is null then 1 else -1 end) as entries,
        sum(case when n.masked_from is null then m.content_bytes else -m.content_bytes end) as content_bytes
    from judged n
    join memories m on (m.repo, m.space, m.rkey) = (n.repo, n.space, n.rkey)
    where (m.masked_from is null) <> (n.masked_from is null)
    group by m.repo, m.space
), counted as (
    update repos r set entry_count = r.entry_count + t.entries, entry_bytes = r.entry_bytes + t.content_bytes
    from turned t
    where (r.repo, r.space) = (t.repo, t.space)
)
update memories m set masked_from = n.masked_from, masked_spans = null, component = null
from judged n
where (m.repo, m.space, m.rkey) = (n.repo, n.space, n.rkey)
    and (m.masked_from is distinct from n.masked_from or m.masked_spans is not null or m.component is not null);

-- name: heed_edges
-- Edges into these records count again.
update memory_edges e set ignored = false
from unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey)
where (e.repo, e.space, e.target) = (k.repo, k.space, k.rkey) and e.ignored;

-- name: component_members
-- The members of these cycles, as they were last flagged.
select rkey from memories
where repo = :repo and space = :space and component = any(:components::text[]);

-- name: replaced_region
-- What these records replace, directly or through others, themselves included: no cycle of theirs leaves it.
-- A cycle's oldest member replaces a newer one, its newest is replaced by an older one: all of it lies in reach.
with recursive reach as materialized (
    select min(coalesce(s.updated_at, s.created_at)) as oldest, max(coalesce(t.updated_at, t.created_at)) as newest
    from memory_edges e
    join memories s on (s.repo, s.space, s.rkey) = (e.repo, e.space, e.rkey)
    join memories t on (t.repo, t.space, t.rkey) = (e.repo, e.space, e.target)
    where e.repo = :repo and e.space = :space and e.upward
),
region (rkey) as (
    select unnest(:rkeys::text[]) collate "C"
    union
    select e.target from region r
    join memories m on m.repo = :repo and m.space = :space and m.rkey = r.rkey
        and coalesce(m.updated_at, m.created_at) between (select oldest from reach) and (select newest from reach)
    join memory_edges e on e.repo = :repo and e.space = :space and e.rkey = r.rkey
)
select m.rkey, coalesce(m.updated_at, m.created_at) as revised_at, m.effective_at, true as inside,
    array(
        select e.target from memory_edges e where (e.repo, e.space, e.rkey) = (m.repo, m.space, m.rkey)
    ) as targets,
    array(
        select e.target from memory_edges e where (e.repo, e.space, e.rkey) = (m.repo, m.space, m.rkey) and e.ignored
    ) as ignored
from region r
join memories m on m.repo = :repo and m.space = :space and m.rkey = r.rkey
union all
select s.rkey, coalesce(s.updated_at, s.created_at), s.effective_at, false, array_agg(e.target),
    coalesce(array_agg(e.target) filter (where e.ignored), '{}')
from region r
join memory_edges e on e.repo = :repo and e.space = :space and e.target = r.rkey
join memories s on (s.repo, s.space, s.rkey) = (e.repo, e.space, e.rkey)
where s.rkey not in (select rkey from region) -- hashed; an anti join is planned as if the region were one row
group by s.rkey, s.updated_at, s.created_at, s.effective_at;

-- name: store_masks
-- Masks of a region that holds or held a cycle. Counts as above.
with judged as (
    select * from unnest(:rkeys::text[], :masked_froms::timestamptz[], :spans::text[], :components::text[])
        as n (rkey, masked_from, spans, component)
), turned as (
    select sum(case when n.masked_from is null then 1 else -1 end) as entries,
        sum(case when n.masked_from is null then m.content_bytes else -m.content_bytes end) as content_bytes
    from judged n
    join memories m on m.repo = :repo and m.space = :space and m.rkey = n.rkey
    where (m.masked_from is null) <> (n.masked_from is null)
), counted as (
    update repos r set entry_count = r.entry_count + t.entries, entry_bytes = r.entry_bytes + t.content_bytes
    from turned t
    where r.repo = :repo and r.space = :space and t.entries is not null
)
update memories m set masked_from = n.masked_from, masked_spans = n.spans::tstzmultirange, component = n.component
from judged n
where m.repo = :repo and m.space = :space and m.rkey = n.rkey
    and (m.masked_from, m.masked_spans, m.component)
        is distinct from (n.masked_from, n.spans::tstzmultirange, n.component);

-- name: turn_edges
-- Edges that the rule for cycles ignores from now on, or no longer.
update memory_edges e set ignored = not e.ignored
from unnest(:rkeys::text[], :targets::text[]) as k (rkey, target)
where e.repo = :repo and e.space = :space and e.rkey = k.rkey and e.target = k.target;
