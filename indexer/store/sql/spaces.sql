-- name: open_spaces
-- Rows for Spaces that somebody opened; one that is there is listed anew before long.
insert into spaces (repo, space, opened_at, credentialed_until)
select i.repo, i.space, i.received_at, i.received_at
from space_inbox i
where i.kind = 'opened' and not exists (select from spaces s where (s.repo, s.space) = (i.repo, i.space))
order by i.repo, i.space
limit :at_most
on conflict (repo, space) do nothing;

-- name: claim_spaces
-- Spaces with something to do, of these authorities or of all, the longest due first, and those later whose hosts fail;
-- whoever claims one has it to itself for a while. So many are looked at that workers need not wait for each other.
with clock as materialized (
    select coalesce(:now::timestamptz, clock_timestamp()) as now
), candidates as (
    (
        select repo, space from spaces
        where due_at <= (select now from clock)
            and (:authorities::text[] is null or repo = any(:authorities))
        order by due_at
        limit 200
    )
    union
    (
        -- not what nobody has opened, nor what is worked on: others would never be seen behind those
        select s.repo, s.space
        from spaces s
        where s.claimed_until <= (select now from clock)
            and (:authorities::text[] is null or s.repo = any(:authorities))
            and exists (select from space_inbox i where (i.repo, i.space) = (s.repo, s.space))
        limit 200
    )
), chosen as (
    select s.repo, s.space
    from spaces s
    join candidates c on (c.repo, c.space) = (s.repo, s.space)
    where s.claimed_until <= (select now from clock)
    order by s.due_at + case when s.attempts > 0 then :tried_later::interval else '0' end
    limit :at_most
    for update of s skip locked
)
update spaces s set
    claim_token = :token, claimed_until = c.now + :claim::interval, due_at = c.now + :claim::interval,
    credentialed_until = greatest(s.credentialed_until, (
        select max(k.expires_at) from credentials k where k.space = s.space
    ))
from chosen n
cross join clock c
where (s.repo, s.space) = (n.repo, n.space)
returning s.repo, s.space, c.now, s.listed_at, s.sweep_after, s.attempts, s.registered_until, s.register_after,
    s.credentialed_until, s.deleted_at,
    exists (select from space_inbox i where (i.repo, i.space) = (s.repo, s.space)) as is_told;

-- name: keep_space
-- It is still worked on.
update spaces s set claimed_until = n.until, due_at = n.until
from (select coalesce(:now::timestamptz, clock_timestamp()) + :claim::interval as until) n
where s.repo = :repo and s.space = :space and s.claim_token = :token
    and s.claimed_until > 'epoch'; -- not if it was ended meanwhile

-- name: live_credentials
-- What a Space can be read with now, the longest that hold first.
select repo, sealed
from credentials
where space = :space and expires_at > coalesce(:now::timestamptz, clock_timestamp()) + :margin::interval
order by expires_at desc, repo
limit :at_most;

-- name: load_notes
-- What the API was told of a Space, or did; deletions first.
select kind, author, rev, hash, received_at
from space_inbox
where repo = :repo and space = :space
order by kind <> 'deleted', received_at, author
limit :at_most;

-- name: drop_notes
-- What was acted upon, unless it was said again since. Whoever lost the Space meanwhile leaves it to those who have it.
delete from space_inbox i
using unnest(:kinds::text[], :authors::text[], :times::timestamptz[]) as n (kind, author, at)
where i.repo = :repo and i.space = :space and (i.kind, i.author) = (n.kind, n.author) and i.received_at <= n.at
    and exists (select from spaces s where (s.repo, s.space) = (i.repo, i.space) and s.claim_token = :token);

-- name: load_listed
-- The authors of a Space, and where they stand as far as is known.
select repo, listed_rev, listed_hash, in_step, hash, pull_after is not null as waits, hidden
from space_repos
where space = :space
order by repo;

-- name: store_listed
-- What a listing changed; null: no longer listed. What was in step so far was confirmed by the last listing.
with listed as (
    select n.*, c.now
    from unnest(:repos::text[], :revs::text[], :hashes::bytea[]) as n (repo, rev, hash)
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
    -- whoever lost the Space meanwhile leaves no rows of it behind its purge
    where exists (
        select from spaces s
        where s.repo = :authority and s.space = :space and s.claim_token = :token and s.deleted_at is null
    )
), added as (
    insert into space_repos (repo, space, listed_rev, listed_hash, account_active, pull_after)
    select n.repo, :space, n.rev, n.hash,
        coalesce((select r.visible from repos r where r.repo = n.repo and r.space = ''), true), n.now
    from listed n
    where n.rev is not null
    order by n.repo
    on conflict (repo, space) do update set
        confirmed_at = case
            when space_repos.in_step then greatest(space_repos.confirmed_at, :listed_at) else space_repos.confirmed_at
        end,
        listed_rev = excluded.listed_rev, listed_hash = excluded.listed_hash,
        in_step = coalesce(space_repos.hash = excluded.listed_hash, false),
        -- what is being pulled is looked at again at its end; what failed is tried again before long, for somebody wrote
        pull_after = case
            when coalesce(space_repos.hash = excluded.listed_hash, false) and space_repos.pull_token is null
                and not space_repos.whole
            then null
            when space_repos.pull_token is not null then space_repos.pull_after
            when space_repos.failure is not null or space_repos.attempts > 0 and space_repos.listed_rev > space_repos.rev
            then least(
                coalesce(space_repos.pull_after, 'infinity'),
                greatest(excluded.pull_after + :hastened::interval, space_repos.rests_until)
            )
            else least(
                coalesce(space_repos.pull_after, 'infinity'), greatest(excluded.pull_after, space_repos.rests_until)
            )
        end,
        hidden = case
            when space_repos.hidden is null or coalesce(space_repos.hash = excluded.listed_hash, false) then null
            else 'stale'
        end
    returning repo
), forgotten as (
    -- of whom nothing is held: a listing of ever new names leaves no rows
    delete from space_repos p
    using listed n
    where p.space = :space and n.repo = p.repo and n.rev is null and p.rev is null and p.pull_token is null
        and not exists (select from repos r where (r.repo, r.space) = (p.repo, p.space))
), absent as (
    update space_repos p set
        listed_rev = null, listed_hash = null, in_step = false, pull_after = null, pull_token = null, hidden = 'unlisted'
    from (
        select p.repo from space_repos p
        join listed n on n.repo = p.repo and n.rev is null
        where p.space = :space and (p.rev is not null or p.pull_token is not null
            or exists (select from repos r where (r.repo, r.space) = (p.repo, p.space)))
        order by p.repo
        for update of p
    ) gone
    where p.repo = gone.repo and p.space = :space
    returning p.repo
)
select repo from added union all select repo from absent;

-- name: show_space_repos
-- Has readers see what may be seen, and nothing else; in order, as every writer.
update repos r set visible = n.shown, changed_at = n.now, status_changed_at = n.now
from (
    select r.repo, p.account_active and p.hidden is null and p.rev is not null as shown, c.now
    from space_repos p
    join repos r on (r.repo, r.space) = (p.repo, p.space)
    cross join (select coalesce(:now::timestamptz, clock_timestamp()) as now) c
    where p.space = :space and p.repo = any(:repos::text[])
    order by r.repo
    for update of r
) n
where r.repo = n.repo and r.space = :space and r.visible <> n.shown;

-- name: hide_stale
-- Authors whose contents were not confirmed in time.
update space_repos p set hidden = 'stale'
from (
    select repo from space_repos
    where space = :space and hidden is null and rev is not null and not in_step and confirmed_at <= :before
    order by repo
    for update
) lapsed
where p.repo = lapsed.repo and p.space = :space
returning p.repo;

-- name: note_listing
-- All of its writers are known as they were then.
update spaces set
    listed_at = :listed_at, sweep_after = :sweep_after, attempts = 0, failure = null
where repo = :repo and space = :space and claim_token = :token and deleted_at is null
returning repo;

-- name: confirm_listing
-- A listing that brings nothing new, of a Space in which nothing waits: all of it is confirmed, and the claim ends. No row
-- if it is otherwise.
update spaces s set
    listed_at = :listed_at, sweep_after = :sweep_after, attempts = 0, failure = null, state = 'ready',
    fresh_until = :listed_at::timestamptz + :staleness::interval, due_at = :sweep_after, claimed_until = 'epoch'
where s.repo = :repo and s.space = :space and s.claim_token = :token and s.deleted_at is null
    and not exists (
        select from unnest(:repos::text[], :revs::text[], :hashes::bytea[]) as n (repo, rev, hash)
        full join (
            select p.repo, p.listed_rev, p.listed_hash, p.in_step and p.pull_after is null as is_quiet
            from space_repos p
            where p.space = :space
                and (p.listed_rev is not null or p.pull_after is not null or (p.rev is not null and p.hidden is null))
        ) p on p.repo = n.repo
        where (n.rev, n.hash, true) is distinct from (p.listed_rev, p.listed_hash, p.is_quiet)
    )
returning s.repo;

-- name: note_failed_listing
-- Its writers could not be listed.
update spaces set attempts = attempts + :counted::integer, failure = :failure, sweep_after = :sweep_after
where repo = :repo and space = :space and claim_token = :token;

-- name: hasten_listing
-- Its writers are to be listed before long, unless that fails just now.
update spaces set sweep_after = least(sweep_after, :sweep_after)
where repo = :repo and space = :space and claim_token = :token and attempts = 0;

-- name: note_registration
-- Until when its host tells of writes, and when to ask it again.
update spaces set registered_until = coalesce(:registered_until, registered_until), register_after = :register_after
where repo = :repo and space = :space and claim_token = :token;

-- name: lock_space
-- Whoever settles a Space sees what those before it did.
select from spaces where repo = :repo and space = :space for update;

-- name: settle_space
-- Until when it may be served, and when there is something to do again: before the first of those lapses that wait for
-- their pull, at the next listing, or never by itself.
update spaces s set
    fresh_until = case when s.listed_at is null then 'epoch' else n.confirmed_at + :staleness::interval end,
    state = case when s.listed_at is null or n.unseen then 'syncing' else 'ready' end,
    due_at = case when :release
        then least(greatest(s.sweep_after, :not_before), n.first_to_lapse + :staleness::interval - :margin::interval)
        else least(s.due_at, n.first_to_lapse + :staleness::interval - :margin::interval) end,
    claimed_until = case when :release then 'epoch' else s.claimed_until end
from (
    select k.repo, k.space,
        least(k.listed_at, min(p.confirmed_at) filter (where p.hidden is null and not p.in_step and p.rev is not null))
            as confirmed_at,
        min(p.confirmed_at) filter (where p.hidden is null and not p.in_step and p.rev is not null) as first_to_lapse,
        coalesce(bool_or(p.listed_rev is not null and p.rev is null and p.failure is null), false) as unseen
    from spaces k
    left join space_repos p on p.space = k.space
    where k.repo = :repo and k.space = :space
    group by k.repo, k.space, k.listed_at
) n
where (s.repo, s.space) = (n.repo, n.space) and s.deleted_at is null
    and (s.claim_token = :token or not :release);

-- name: stop_pulls
-- Nothing reads this Space at the moment: what is to be pulled is found again by the next listing.
update space_repos p set pull_after = null, pull_token = null
from (
    select repo from space_repos where space = :space and pull_after is not null order by repo for update
) waiting
where p.repo = waiting.repo and p.space = :space;
