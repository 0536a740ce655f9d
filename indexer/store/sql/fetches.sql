-- name: claim_of_hosts
-- Due requests of a kind whose hosts are free, the longest due first; whoever claims one has it to itself for a while.
-- A fetch waits until every daemon that runs tracks its repo: what it reads before that is nobody else's to tell.
-- So many of the longest due are looked at. Where there are more, hosts take turns from the one that was looked at last,
-- with a few requests each: what waits for a host that is busy stands in nobody's way. What rests is due after its rest.
with recursive clock as materialized (
    select coalesce(:now::timestamptz, clock_timestamp()) as now
), longest_due as materialized (
    select repo, not_before, asked_at, host
    from requests
    where kind = :kind and tracked and space = '' and not_before <= (select now from clock)
    order by not_before
    limit :looked_at
), turns as (
    select :after_host::text collate "C" as host, 0 as number
    where (select count(*) from longest_due) = :looked_at
    union all
    select n.host, t.number + 1
    from turns t
    cross join lateral (
        select host from requests
        where kind = :kind and tracked and space = '' and host > t.host
        order by host
        limit 1
    ) n
    where t.number < :hosts_looked_at::integer
), seen as (
    select * from longest_due
    union
    select d.*
    from turns t
    cross join lateral (
        select repo, not_before, asked_at, host
        from requests
        where kind = :kind and tracked and space = '' and host = t.host and not_before <= (select now from clock)
        order by not_before
        limit :looked_at_each
    ) d
    where t.host <> all(:busy_hosts::text[])
), judged as materialized (
    select s.repo, s.not_before, t.host, coalesce(t.host, '') as host_now, s.host as host_then,
        -- where one was killed, its request stays due, by which that is seen
        case when :kind = 'fetch' and t.state <> 'resyncing' and t.fetch_after > c.now then t.fetch_after end as rests_to,
        coalesce(t.host <> all(:busy_hosts::text[]), true)
            and (
                :kind <> 'fetch'
                or (
                    (t.fetch_after is null or t.fetch_after <= c.now)
                    and not exists (select from leases l where l.expires_at > now() and l.tracks_as_of < s.asked_at)
                )
            ) as is_free
    from seen s
    join repos t on (t.repo, t.space) = (s.repo, '')
    cross join clock c
), chosen as (
    select r.repo, c.now + :claim::interval as not_before, 1 as attempts, j.host_now, j.not_before as due_at
    from requests r
    join judged j on r.repo = j.repo
    cross join clock c
    where r.kind = :kind and r.space = '' and j.is_free and r.not_before <= c.now -- nobody else has claimed it since
    order by j.not_before
    limit :at_most
    for update of r skip locked
), put_off as (
    select r.repo, coalesce(j.rests_to, r.not_before) as not_before, 0 as attempts, j.host_now, j.not_before as due_at
    from requests r
    join judged j on r.repo = j.repo
    cross join clock c
    where r.kind = :kind and r.space = '' and r.not_before <= c.now
        and not j.is_free and (j.rests_to is not null or j.host_then <> j.host_now)
    for update of r skip locked
), updated as (
    update requests r set not_before = n.not_before, attempts = r.attempts + n.attempts, host = n.host_now
    from (select * from chosen union all select * from put_off) n
    where (r.repo, r.space, r.kind) = (n.repo, '', :kind)
    returning r.repo, r.reason, r.attempts, r.requested_at, nullif(r.host, '') as host, n.due_at, n.attempts = 1 as claimed
)
select
    case when (select max(number) from turns) = :hosts_looked_at::integer then (select max(host) from turns) end
        as looked_up_to,
    u.repo, u.reason, u.attempts, u.requested_at, u.host, c.now as claimed_at
from clock c
left join updated u on u.claimed
order by u.due_at;

-- name: keep_claim
-- It is still worked on, unless somebody else has claimed it since.
update requests set not_before = n.claimed_until
from (select coalesce(:now::timestamptz, clock_timestamp()) + :claim::interval as claimed_until) n
where repo = :repo and space = '' and kind = :kind and attempts = :attempts and not_before < n.claimed_until;

-- name: put_back
-- It could not be answered now; what was no attempt does not count as one. What somebody else has claimed since stays.
update requests q set
    not_before = coalesce(:now::timestamptz, clock_timestamp()) + :wait::interval,
    attempts = attempts - :uncounted::integer, failure = coalesce(:failure::text, failure),
    host = coalesce((select t.host from repos t where t.repo = :repo and t.space = ''), q.host)
where repo = :repo and space = '' and kind = :kind and attempts = :attempts;

-- name: standing
-- Where what is held of a repo stands.
select rev, state from repos where repo = :repo and space = '';

-- name: held_cids
-- Every record that is held of a repo, valid or not; and one without a CID if any was ever held.
select rkey, cid from memories where repo = :repo and space = ''
union all
select rkey, cid from invalid_records where repo = :repo and space = ''
union all
(select rkey, null from memory_versions where repo = :repo and space = '' limit 1);

-- name: order_fetches
-- Fetches of these repos, due now.
insert into requests (repo, space, kind, reason, requested_at, not_before, host)
select n.repo, '', 'fetch', :reason, c.now, c.now, coalesce(r.host, '')
from unnest(:repos::text[]) as n (repo)
join repos r on r.repo = n.repo and r.space = ''
cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
order by n.repo
on conflict (repo, space, kind) do update set
    reason = excluded.reason, failure = null,
    requested_at = greatest(excluded.requested_at, requests.requested_at + interval '1 microsecond'),
    -- what is worked on just now is done again after; what waits, waits no longer
    not_before = case when requests.attempts = 0 or requests.not_before > excluded.not_before + :claim::interval
        then excluded.not_before else requests.not_before end,
    attempts = case when requests.not_before > excluded.not_before + :claim::interval then 0 else requests.attempts end
returning repo;

-- name: let_fetches_begin
-- An operator's word counts over how often a repo may be fetched. Before any of their requests, as every writer.
update repos r set fetch_after = null
from (
    select repo from repos
    where space = '' and repo = any(:repos::text[]) and fetch_after is not null
    order by repo
    for no key update
) waiting
where r.repo = waiting.repo and r.space = '';

-- name: repos_after
-- Tracked repos in order, of one state or of all.
select repo from repos
where space = '' and repo > :after and (:state::text is null or state = :state)
order by repo
limit :at_most;

-- name: forsaken_fetches
-- Repos whose fetch ended without a word: what they hold is not known to be whole.
update repos r set
    state = 'desynchronized', reason = 'fetch_interrupted', fetch_token = null, changed_at = forsaken.now
from (
    select repo, c.now from repos t
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
    where t.state = 'resyncing' and t.space = '' and not exists (
        select from requests q
        where q.repo = t.repo and q.space = '' and q.kind = 'fetch' and q.not_before > c.now
    )
    order by repo
    for update of t skip locked
) forsaken
where r.repo = forsaken.repo and r.space = ''
returning r.repo;

-- name: unasked_fetches
-- Repos that are not whole, and that nobody asked to fetch.
insert into requests (repo, space, kind, reason, requested_at, not_before, host)
select r.repo, '', 'fetch', coalesce(r.reason, r.state), c.now, c.now, coalesce(r.host, '')
from repos r
cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
where r.state in ('pending', 'desynchronized', 'error') and r.space = '' and r.visible
    and r.reason is distinct from 'denied'
    and not exists (select from requests q where q.repo = r.repo and q.space = '' and q.kind = 'fetch')
order by r.repo
limit :at_most
on conflict (repo, space, kind) do nothing
returning repo;

-- name: next_gap
-- A source that lost frames, to be worked off by one at a time. Its row is every writer's, and is not locked yet.
select source, gap_compared_to from sources
where gap_at is not null and pg_try_advisory_xact_lock(hashtextextended('gap', 0))
order by gap_at, source
limit 1;

-- name: compare_repos_after
-- Asks where these repos stand at their hosts; how far that went, null: to the end.
with next as (
    select repo, coalesce(host, '') as host from repos
    where space = '' and repo > :after and reason is distinct from 'denied'
    order by repo
    limit :at_most
), asked as (
    insert into requests (repo, space, kind, reason, requested_at, not_before, host)
    select n.repo, '', 'latest_commit', 'gap', c.now, c.now, n.host
    from next n
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
    order by n.repo
    on conflict (repo, space, kind) do update set
        reason = excluded.reason,
        requested_at = greatest(excluded.requested_at, requests.requested_at + interval '1 microsecond')
)
select case when count(*) = :at_most then max(repo) end from next;

-- name: gap_compared
-- How far a gap was worked off; null: wholly. One that was noted again meanwhile starts anew.
update sources set gap_compared_to = :compared_to, gap_at = case when :compared_to::text is null then null else gap_at end
where source = :source and gap_compared_to is not distinct from :compared_from;

-- name: audit_repos
-- Asks where those repos stand that nobody compared for longest: all that are held for whole, hidden ones too.
insert into requests (repo, space, kind, reason, requested_at, not_before, host)
select due.repo, '', 'latest_commit', 'audit', c.now, c.now, due.host
from (
    select repo, coalesce(host, '') as host from repos r
    where space = ''
        and coalesce(audited_at, tracked_at) <
            (select coalesce(:now::timestamptz, clock_timestamp()) - :audit_every::interval)
        and state = 'active' and data_cid is not null
        and not exists (select from requests q where q.repo = r.repo and q.space = '' and q.kind = 'latest_commit')
    order by coalesce(audited_at, tracked_at)
    limit :at_most
) due
cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
order by due.repo
on conflict (repo, space, kind) do nothing
returning repo;

-- name: track_repos
-- Repos that were found; those that are tracked stay as they are.
insert into repos (repo, space, state, reason, tracked_at, changed_at, host, listed_by)
select n.repo, '', 'pending', 'discovered', now(), coalesce(:now::timestamptz, clock_timestamp()), n.host,
    :listed_by::text
from unnest(:repos::text[], :hosts::text[]) as n (repo, host)
order by n.repo
on conflict (repo, space) do nothing
returning repo;

-- name: fetch_unfetched
-- Fetches of those of these repos that are not whole, where nobody asked for one.
insert into requests (repo, space, kind, reason, requested_at, not_before, host)
select r.repo, '', 'fetch', 'discovered', c.now, c.now, coalesce(r.host, '')
from repos r
cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
where r.space = '' and r.repo = any(:repos::text[]) and r.state <> 'active' and r.reason is distinct from 'denied'
order by r.repo
for no key update of r -- one that is made whole just now needs no other fetch
on conflict (repo, space, kind) do nothing
returning repo;

-- name: count_unverified
-- Repos of which nothing was verified yet, of one list and of all; of more than so many it is not told how many.
select
    (select count(*) from (select from repos where listed_by = :listed_by limit :of_one) one) as of_one,
    (select count(*) from (select from repos where listed_by is not null limit :of_all) every) as of_all;

-- name: hold_up_discovery
-- No more of a list is read for a while.
insert into discoveries (origin, page_cursor, repos_found, started_at, updated_at, held_up_at)
values (:origin, :page_cursor, :repos_found, :started_at, :now, :now)
on conflict (origin) do update set held_up_at = excluded.held_up_at;

-- name: discovery
-- How far a search for repos came.
select page_cursor, repos_found, started_at, finished_at from discoveries where origin = :origin;

-- name: store_discovery
-- How far a search for repos is now.
insert into discoveries (origin, page_cursor, repos_found, started_at, updated_at, finished_at)
values (:origin, :page_cursor, :repos_found, :started_at, :now, :finished_at)
on conflict (origin) do update set
    page_cursor = excluded.page_cursor, repos_found = excluded.repos_found, started_at = excluded.started_at,
    updated_at = excluded.updated_at, finished_at = excluded.finished_at, held_up_at = null;

-- name: acknowledge_tracking
-- A daemon knows every repo that was tracked before that.
update leases set tracks_as_of = :as_of where holder = :holder;

-- name: database_time
-- The database's clock.
select clock_timestamp();

-- name: count_whole
-- How many of these repos are whole.
select count(*) from repos where space = '' and repo = any(:repos::text[]) and state = 'active';

-- name: count_fetches
-- Fetches that wait, by why the last attempt failed; null: none has ended.
select failure, count(*) as repos from requests where kind = 'fetch' and space = '' group by failure;

-- name: fetch_is_due
-- Whether a fetch that was asked for until then has not been tried, and can be before long.
select exists (
    select from requests q
    join repos t on (t.repo, t.space) = (q.repo, q.space)
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) + :patience::interval as before) c
    where q.kind = 'fetch' and q.space = '' and q.failure is null and q.asked_at <= :asked_until
        and q.not_before <= c.before and (t.fetch_after is null or t.fetch_after <= c.before)
        and (t.host is null or t.host <> all(:hosts_away::text[]))
);

-- name: waiting_fetches
-- Fetches that were asked for between these times and still wait, by why the last attempt failed; null: none has ended.
select failure, count(*) as repos
from requests
where kind = 'fetch' and space = '' and asked_at between :asked_from and :asked_until
group by failure
order by count(*) desc, failure;

-- name: outcomes_of_fetches
-- What became of the fetches of these repos.
select n.repo, q.repo is not null as waits, q.failure, greatest(q.not_before, t.fetch_after) as not_before,
    coalesce(greatest(q.not_before, t.fetch_after) > c.before, false) as is_far,
    t.host, t.state, t.reason, t.visible, t.status
from unnest(:repos::text[]) as n (repo)
join repos t on (t.repo, t.space) = (n.repo, '')
cross join (select coalesce(:now::timestamptz, clock_timestamp()) + :patience::interval as before) c
left join requests q on (q.repo, q.space, q.kind) = (n.repo, '', 'fetch');
