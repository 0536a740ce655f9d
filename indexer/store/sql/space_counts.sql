-- name: spaces_by_state
-- Spaces by how they do, of those the ones whose hosts tell of writes, and since when one of them was not listed.
select
    n.state,
    count(*) as spaces,
    count(*) filter (where n.registered_until > n.now) as told,
    greatest(extract(epoch from max(n.now - n.swept_at)), 0)::float8 as swept_s
from (
    select
        c.now, s.registered_until, coalesce(s.listed_at, s.opened_at) as swept_at,
        case
            when s.state = 'deleted' then 'deleted'
            when not exists (select from credentials k where k.space = s.space and k.expires_at > c.now) then 'unread'
            when s.attempts > 0 then 'unreachable'
            when s.state = 'syncing' then 'syncing'
            when s.fresh_until <= c.now then 'stale'
            else 'ready'
        end as state
    from spaces s
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
) n
group by n.state;

-- name: space_repos_by_state
-- Repos in Spaces by how they do, those of them that are to be pulled, and for how long the first could have been.
select
    n.state,
    count(*) as repos,
    count(n.pull_after) as pulls,
    coalesce(greatest(extract(epoch from max(n.now - n.pull_after)), 0), 0)::float8 as late_s
from (
    select
        c.now, p.pull_after,
        case
            when not p.account_active then 'inactive'
            when p.hidden is not null then p.hidden
            when p.rev is null then 'new'
            when p.in_step then 'in_step'
            else 'behind'
        end as state
    from space_repos p
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
) n
group by n.state;

-- name: space_notes_waiting
-- What the API handed over, and for how long the first of it has waited.
select
    count(*) as notes,
    coalesce(
        greatest(extract(epoch from coalesce(:now::timestamptz, clock_timestamp()) - min(received_at)), 0), 0
    )::float8 as late_s
from space_inbox;

-- name: failing_spaces
-- Spaces that somebody has open and whose authors cannot be listed, by reason.
select s.failure as reason, count(*) as failing
from spaces s
where s.attempts > 0 and s.failure is not null and s.state <> 'deleted'
    and exists (
        select from credentials k
        where k.space = s.space and k.expires_at > coalesce(:now::timestamptz, clock_timestamp())
    )
group by s.failure
order by count(*) desc, s.failure;

-- name: failing_space_repos
-- Repos in Spaces that cannot be pulled, and are tried again, by reason; not those whose authors an operator took down.
select failure as reason, count(*) as failing
from space_repos
where pull_after is not null and failure <> 'denied'
group by failure
order by count(*) desc, failure;

-- name: add_tallies
-- What came of so much work.
insert into space_tallies (work, outcome, times, last_at)
select n.work, n.outcome, n.times, coalesce(:now::timestamptz, clock_timestamp())
from unnest(:works::text[], :outcomes::text[], :times::bigint[]) as n (work, outcome, times)
order by n.work, n.outcome
on conflict (work, outcome) do update set
    times = space_tallies.times + excluded.times, last_at = excluded.last_at;

-- name: load_tallies
-- What came of all work so far.
select work, outcome, times from space_tallies order by work, outcome limit :at_most;
