-- name: due_pulls
-- Repos in Spaces that are to be pulled, and where: so many of the longest due. Where there are more, Spaces take turns from
-- the one that was looked at last, with a few repos each: what waits of a large Space stands in nobody's way.
with recursive clock as materialized (
    select coalesce(:now::timestamptz, clock_timestamp()) as now
), longest_due as materialized (
    select repo, space, host, pull_after
    from space_repos
    where pull_after <= (select now from clock)
    order by pull_after
    limit :looked_at
), turns as (
    select :after_space::text collate "C" as space, 0 as number
    where (select count(*) from longest_due) = :looked_at
    union all
    select n.space, t.number + 1
    from turns t
    cross join lateral (
        select space from space_repos
        where space > t.space and pull_after is not null
        order by space
        limit 1
    ) n
    where t.number < :spaces_looked_at::integer
), seen as (
    select * from longest_due
    union
    select d.*
    from turns t
    cross join lateral (
        select repo, space, host, pull_after
        from space_repos
        -- as a range, whose order only the index by Space has
        where (space, pull_after) >= (t.space, '-infinity'::timestamptz)
            and (space, pull_after) <= (t.space, (select now from clock)) and pull_after is not null
        order by space, pull_after
        limit :looked_at_each
    ) d
)
select
    s.repo, s.space, coalesce(nullif(s.host, ''), i.host, '') as host, s.pull_after,
    (select max(number) from turns) as spaces_looked_at, (select max(space) from turns) as looked_up_to
from seen s
left join identities i on i.repo = s.repo;

-- name: claim_pulls
-- Takes the first of these repos that nobody has claimed since they were looked at.
with clock as materialized (
    select coalesce(:now::timestamptz, clock_timestamp()) as now
), chosen as (
    select p.repo, p.space, n.place
    from unnest(:repos::text[], :spaces::text[]) with ordinality as n (repo, space, place)
    join space_repos p on (p.repo, p.space) = (n.repo, n.space)
    where p.pull_after <= (select now from clock)
    order by n.place
    limit :at_most
    for update of p skip locked
)
update space_repos p set pull_after = c.now + :claim::interval, pull_token = :token, attempts = p.attempts + 1
from chosen n
cross join clock c
where (p.repo, p.space) = (n.repo, n.space)
returning p.repo, p.space, c.now, p.attempts, p.listed_rev, p.listed_hash, p.rev, p.hash, p.set_state, p.whole,
    p.account_active,
    (select r.state from repos r where (r.repo, r.space) = (p.repo, p.space)) as state;

-- name: put_off_pulls
-- Nobody can pull these now, and others wait behind them.
update space_repos p set pull_after = n.until
from (
    select p.repo, p.space, c.now + :wait::interval as until
    from unnest(:repos::text[], :spaces::text[]) as n (repo, space)
    join space_repos p on (p.repo, p.space) = (n.repo, n.space)
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
    where p.pull_after <= c.now
    order by p.repo, p.space
    for update of p skip locked
) n
where (p.repo, p.space) = (n.repo, n.space);

-- name: keep_pull
-- It is still worked on.
update space_repos set pull_after = coalesce(:now::timestamptz, clock_timestamp()) + :claim::interval
where repo = :repo and space = :space and pull_token = :token;

-- name: lock_pull
-- Whether a pull still has its repo; locked until the transaction ends, before its row in `repos`, which readers use: one
-- that nobody sees yet is made if there is none. And whether anybody at all was taken down.
with held as materialized (
    select repo, space from space_repos
    where repo = :repo and space = :space and pull_token = :token
    for update
), tracked as (
    insert into repos (repo, space, state, visible, tracked_at, changed_at)
    select repo, space, 'pending', false, :at::timestamptz, :at::timestamptz from held
    on conflict (repo, space) do nothing
)
select exists (select from denials) as any_denied from held;

-- name: end_pull
-- What is held now is what the host had then, and readers see it if they may. It rests before the next; what was listed
-- meanwhile is pulled after. In step is what has the hash that was listed, whatever its rev: else it is pulled again and
-- again, ever more seldom, until it is. Last it locks the Space's row, which all need who work on its repos: `settle_space` is
-- to follow.
with ended as (
    update space_repos p set
        rev = :rev, hash = :hash, set_state = :set_state, confirmed_at = :confirmed_at,
        in_step = n.in_step, hidden = case when p.listed_rev is null then 'unlisted' end,
        whole = :whole_after::timestamptz is not null, host = :host, pull_token = null,
        rests_until = n.now + :rest::interval,
        attempts = case when n.in_step or not n.is_as_listed then 0 else p.attempts end, failure = null,
        pull_after = case
            when p.listed_rev is null then null
            when not n.in_step
            then n.now + case when n.is_as_listed then greatest(:rest::interval, :again::interval) else :rest::interval end
            else :whole_after::timestamptz
        end
    from (
        select q.repo, q.space, c.now, l.is_as_listed,
            coalesce(q.listed_hash = :hash, false) as in_step
        from space_repos q
        cross join lateral (
            select (q.listed_rev, q.listed_hash) is not distinct from (:listed_rev::text, :listed_hash::bytea) as is_as_listed
        ) l
        cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
        where q.repo = :repo and q.space = :space
    ) n
    where (p.repo, p.space) = (n.repo, n.space) and p.pull_token = :token
    returning p.repo, p.space, n.now, p.account_active and p.hidden is null as shown
), shown as (
    update repos r set visible = e.shown, changed_at = e.now, status_changed_at = e.now
    from ended e
    where (r.repo, r.space) = (e.repo, e.space) and r.visible <> e.shown
)
select from spaces where repo = :authority and space = :space for update;

-- name: put_back_pull
-- Nothing came of it; it is tried again later. What was no attempt does not count as one.
update space_repos p set
    pull_after = c.now + :wait::interval, pull_token = null, attempts = p.attempts - :uncounted::integer,
    failure = coalesce(:failure::text, p.failure), whole = p.whole or :whole, host = coalesce(:host::text, p.host)
from (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
where p.repo = :repo and p.space = :space and p.pull_token = :token;

-- name: drop_pull
-- Nothing reads its Space at the moment; the next listing finds it again.
update space_repos set pull_after = null, pull_token = null, attempts = attempts - 1
where repo = :repo and space = :space and pull_token = :token;

-- name: held_in_space
-- Every record that is held of a repo in a Space, valid or not; and one without a CID if any was ever held.
select rkey, cid from memories where repo = :repo and space = :space
union all
select rkey, cid from invalid_records where repo = :repo and space = :space
union all
(select rkey, null from memory_versions where repo = :repo and space = :space limit 1);

-- name: note_accounts
-- Whether accounts are active, for their repos in Spaces; in order. Says which changed.
update space_repos p set
    account_active = n.active,
    pull_after = case when n.active and p.pull_token is null then least(p.pull_after, :at) else p.pull_after end
from (
    select p.repo, p.space, a.active
    from unnest(:repos::text[], :actives::boolean[]) as a (repo, active)
    join space_repos p on p.repo = a.repo
    where p.account_active <> a.active
    order by p.repo, p.space
    for update of p
) n
where (p.repo, p.space) = (n.repo, n.space)
returning p.repo, p.space;

-- name: show_repos_of_accounts
-- Has readers see what accounts that are active hold in Spaces, and nothing of those that are not.
update repos r set visible = n.shown, status = n.status, changed_at = :at, status_changed_at = :at
from (
    select r.repo, r.space, a.status, a.active and p.hidden is null and p.rev is not null as shown
    from unnest(:repos::text[], :actives::boolean[], :statuses::text[]) as a (repo, active, status)
    join space_repos p on p.repo = a.repo
    join repos r on (r.repo, r.space) = (p.repo, p.space)
    order by r.repo, r.space
    for update of r
) n
where (r.repo, r.space) = (n.repo, n.space) and (r.visible, r.status) is distinct from (n.shown, n.status);

-- name: end_grants_of_accounts
-- Whose account is inactive reads no Space.
delete from grants where repo = any(:repos::text[]);

-- name: end_credentials_of_accounts
-- Nor is any read for them.
delete from credentials where repo = any(:repos::text[]);

-- name: empty_space_repos
-- Of accounts that are no more, or were taken down: nothing of them is held in any Space; in order. All of their rows, so that
-- nobody who does not know of it yet claims one before this is committed.
update space_repos p set
    rev = null, hash = null, set_state = null, confirmed_at = null, in_step = false, whole = false,
    pull_after = null, pull_token = null
from (
    select repo, space from space_repos
    where repo = any(:repos::text[])
    order by repo, space
    for update
) n
where (p.repo, p.space) = (n.repo, n.space)
returning p.repo, p.space;

-- name: delete_repos_of
-- The rows that readers used.
delete from repos where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[])) and space <> '';

-- name: accounts_in_spaces
-- Whose accounts count though their public repos may not be followed: authors in Spaces, and viewers of them.
select repo from space_repos
union
select repo from grants;
