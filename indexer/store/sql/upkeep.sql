-- Expiry goes slice by slice, each its own transaction. It locks no row that another has locked, so that it never waits:
-- what somebody works on just now is left for the next time.

-- name: expire_quarantine
-- Bytes that are no frame are kept for a while.
with slice as (
    select source, sha256, previous_seq from quarantine
    where last_met_at < :before
    order by last_met_at
    limit :at_most
    for update skip locked
)
delete from quarantine q using slice s
where (q.source, q.sha256, q.previous_seq) = (s.source, s.sha256, s.previous_seq);

-- name: expire_parked_commits
-- Commits whose key never became known, or whose repo was not fetched.
with slice as (
    select repo, rev, source from parked_commits
    where parked_at < :before
    order by parked_at
    limit :at_most
    for update skip locked
)
delete from parked_commits p using slice s
where (p.repo, p.rev, p.source) = (s.repo, s.rev, s.source);

-- name: erase_version_content
-- Content of versions that were overwritten long ago; what stays says that there was one.
with slice as (
    select repo, space, rkey, number from memory_versions
    where record is not null and overwritten_at < :before
    order by overwritten_at
    limit :at_most
    for update skip locked
)
update memory_versions v set
    record = null, cid = null, scope = null, content_bytes = 0, content_sha256 = sha256(''::bytea),
    redacted_at = v.overwritten_at
from slice s
where (v.repo, v.space, v.rkey, v.number) = (s.repo, s.space, s.rkey, s.number);

-- name: expire_invalid_records
-- Records that fail the lexicon. At its repo's quota edge and behind it a row stays, emptied: a record of which nothing
-- is held there counts as one that the quota keeps out.
with slice as (
    select i.repo, i.space, i.rkey, i.seen_at, octet_length(i.excerpt) as excerpt_bytes,
        coalesce(i.rkey >= r.quota_edge, false) as kept
    from invalid_records i
    left join repos r on (r.repo, r.space) = (i.repo, i.space)
    where i.seen_at < :before
        and (i.seen_at, i.repo, i.space, i.rkey) > (:after_seen_at::timestamptz, :after_repo, :after_space, :after_rkey)
    order by i.seen_at, i.repo, i.space, i.rkey
    limit :at_most
    for update of i skip locked
), emptied as (
    update invalid_records i set excerpt = ''
    from slice s
    where (i.repo, i.space, i.rkey) = (s.repo, s.space, s.rkey) and s.kept and s.excerpt_bytes > 0
    returning true
), deleted as (
    delete from invalid_records i
    using slice s
    where (i.repo, i.space, i.rkey) = (s.repo, s.space, s.rkey) and not s.kept
    returning true
)
select (select count(*) from emptied) + (select count(*) from deleted) as rows, seen_at, repo, space, rkey
from slice
order by seen_at desc, repo desc, space desc, rkey desc
limit 1;

-- name: expire_account_statuses
-- Words on accounts whose first commit waited for a key, and that were never tracked; a page of all words at a time.
with page as (
    select repo, source from account_status
    where (repo, source) > (:after_repo, :after_source)
    order by repo, source
    limit :at_most
), slice as (
    select a.repo, a.source
    from account_status a
    join page using (repo, source)
    where a.event_time < :before and not exists (select from repos r where (r.repo, r.space) = (a.repo, ''))
    for update of a skip locked
), deleted as (
    delete from account_status a using slice s where (a.repo, a.source) = (s.repo, s.source) returning true
)
select (select count(*) from deleted) as rows, repo, source from page order by repo desc, source desc limit 1;

-- name: expire_requests
-- Questions about strangers of whom nothing waits any more; a page of all questions at a time.
with page as (
    select repo, space, kind from requests
    where (repo, space, kind) > (:after_repo, :after_space, :after_kind)
    order by repo, space, kind
    limit :at_most
), slice as (
    select q.repo, q.space, q.kind
    from requests q
    join page using (repo, space, kind)
    where q.requested_at < :before
        and not exists (select from repos r where (r.repo, r.space) = (q.repo, q.space))
        and not exists (select from parked_commits p where p.repo = q.repo)
    for update of q skip locked
), deleted as (
    delete from requests q using slice s where (q.repo, q.space, q.kind) = (s.repo, s.space, s.kind) returning true
)
select (select count(*) from deleted) as rows, repo, space, kind from page
order by repo desc, space desc, kind desc
limit 1;

-- name: repos_tracked_since
-- Repos that somebody began to track, by any process.
select repo, tracked_at from repos where space = '' and tracked_at > :since order by tracked_at;

-- name: unasked
-- Repos whose identity nobody has to ask for.
select n.repo from unnest(:repos::text[]) as n (repo)
where not exists (select from requests r where (r.repo, r.space, r.kind) = (n.repo, '', 'identity'));

-- name: count_backlog
-- What metrics tell of the tables.
select
    (select count(*) from parked_commits) as parked_commits,
    (select count(*) from quarantine) as quarantined_frames;

-- name: unwhole_repos
-- Repos that are not known to be whole, by state.
select state, count(*) as repos from repos where state <> 'active' and space = '' group by state;

-- name: open_requests_by_kind
-- What waits to be asked.
select kind, count(*) as requests from requests group by kind;
