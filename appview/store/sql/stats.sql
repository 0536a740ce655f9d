-- name: tallies
-- How readable memories of all authors divide: in effect by kind, scope and agent (the most frequent values of each, and how
-- many there are), and the replaced ones. Long values are cut, `kind` may be of any length.
with readable as (
    select
        left(coalesce(m.kind, ''), :max_characters::int) as kind,
        left(coalesce(m.scope, ''), :max_characters) as scope,
        left(coalesce(m.agent, ''), :max_characters) as agent,
        m.masked_from is null as in_effect
    from memories m
    join repos r on r.repo = m.repo and r.space = m.space and r.visible
    where m.space = '' or m.space = any(:spaces::text[])
),
tally as (
    select
        case grouping(kind, scope, agent) when 3 then 'kinds' when 5 then 'scopes' when 6 then 'agents' else 'all' end as property,
        coalesce(kind, scope, agent, '') as value,
        count(*) filter (where in_effect) as records,
        count(*) filter (where not in_effect) as superseded
    from readable
    group by grouping sets ((), (kind), (scope), (agent))
),
ranked as (
    select
        property, value, records, superseded,
        count(*) over (partition by property) as distinct_values,
        row_number() over (partition by property order by records desc, value) as place
    from tally
    where property = 'all' or records > 0
)
select property, value, records, superseded, distinct_values
from ranked
where place <= :max_values::int
order by property, place;

-- name: tallies_of
-- The same of one author.
with readable as (
    select
        left(coalesce(m.kind, ''), :max_characters::int) as kind,
        left(coalesce(m.scope, ''), :max_characters) as scope,
        left(coalesce(m.agent, ''), :max_characters) as agent,
        m.masked_from is null as in_effect
    from memories m
    join repos r on r.repo = m.repo and r.space = m.space and r.visible
    where m.repo = :repo::text and (m.space = '' or m.space = any(:spaces::text[]))
),
tally as (
    select
        case grouping(kind, scope, agent) when 3 then 'kinds' when 5 then 'scopes' when 6 then 'agents' else 'all' end as property,
        coalesce(kind, scope, agent, '') as value,
        count(*) filter (where in_effect) as records,
        count(*) filter (where not in_effect) as superseded
    from readable
    group by grouping sets ((), (kind), (scope), (agent))
),
ranked as (
    select
        property, value, records, superseded,
        count(*) over (partition by property) as distinct_values,
        row_number() over (partition by property order by records desc, value) as place
    from tally
    where property = 'all' or records > 0
)
select property, value, records, superseded, distinct_values
from ranked
where place <= :max_values::int
order by property, place;

-- name: count_repos
-- Authors with readable memories.
select count(distinct r.repo)
from repos r
where r.visible and r.memory_count > 0 and (r.space = '' or r.space = any(:spaces::text[]));

-- name: repo_sync
-- How far the index follows one author's public repo.
select r.repo, r.state, r.reason, r.rev, r.changed_at, i.handle
from repos r
left join identities i on i.repo = r.repo and not i.tombstoned
where r.repo = :repo::text and r.space = '' and r.visible;

-- name: indexed_through
-- The time up to which all sources are covered that a daemon follows now (all there are, if none is), as they claim. What
-- is said to be of the future is not believed, but for clocks that are a little fast.
select min(least(s.frame_time, :now::timestamptz))
from sources s
where s.frame_time <= :now + interval '5 minutes'
    and (
        exists (select from leases l where l.source = s.source and l.expires_at > now())
        or not exists (select from leases l where l.expires_at > now())
    );
