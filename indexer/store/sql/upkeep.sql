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

-- name: erase_invalid_excerpts
-- The beginnings of records that fail the lexicon. That one does stays known for as long as it stands: when the edge of
-- its repo's quota moves before it, it is counted among what is kept out.
with slice as (
    select repo, space, rkey from invalid_records
    where excerpt <> '' and seen_at < :before
    order by seen_at
    limit :at_most
    for update skip locked
)
update invalid_records i set excerpt = '' from slice s where (i.repo, i.space, i.rkey) = (s.repo, s.space, s.rkey);

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
    where a.event_time < :before and not exists (select from repos r where r.repo = a.repo)
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

-- name: expire_identities
-- Identities of whoever only signed in, or was only met: nobody follows them, and nobody has to be asked about them; a page
-- of all identities at a time.
with page as (
    select repo from identities where repo > :after_repo order by repo limit :at_most
), slice as (
    select i.repo
    from identities i
    join page using (repo)
    where i.resolved_at < :before
        and not exists (select from repos r where r.repo = i.repo)
        and not exists (select from requests q where q.repo = i.repo)
    for update of i skip locked
), deleted as (
    delete from identities i using slice s where i.repo = s.repo returning true
)
select (select count(*) from deleted) as rows, repo from page order by repo desc limit 1;

-- name: expire_access_tokens
-- Access tokens that hold no more.
with slice as (
    select repo, id from access_tokens
    where expires_at < :before
    order by expires_at
    limit :at_most
    for update skip locked
)
delete from access_tokens a using slice s where (a.repo, a.id) = (s.repo, s.id);

-- name: expire_seen_tokens
-- Service-auth tokens that were used, and hold no more by any clock.
with slice as (
    select repo, jti_sha256 from seen_tokens
    where expires_at < :before
    order by expires_at
    limit :at_most
    for update skip locked
)
delete from seen_tokens t using slice s where (t.repo, t.jti_sha256) = (s.repo, s.jti_sha256);

-- name: expire_deletions
-- What no backup is left of that would bring it back.
with slice as (
    select repo, subject_sha256 from deletions
    where deleted_at < :before
    order by deleted_at
    limit :at_most
    for update skip locked
)
delete from deletions d using slice s where (d.repo, d.subject_sha256) = (s.repo, s.subject_sha256);

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
    (select count(*) from quarantine) as quarantined_frames,
    (select count(*) from requests where kind = 'fetch' and failure = 'disk_unavailable') as without_disk;

-- name: unwhole_repos
-- Repos that are not known to be whole, by state.
select state, count(*) as repos from repos where state <> 'active' and space = '' group by state;

-- name: waiting_for_vectors
-- Memories that wait for a vector, by model; also of models for which none does.
select m.model, (select count(*) from embedding_requests r where r.model = m.model) as waiting
from embedding_models m
order by m.model;

-- name: open_requests_by_kind
-- What waits to be asked.
select kind, count(*) as requests from requests group by kind;
