-- name: expire_quarantine
-- Bytes that are no frame are kept for a while.
delete from quarantine where last_met_at < :before;

-- name: expire_parked_commits
-- Commits whose key never became known.
delete from parked_commits where parked_at < :before;

-- name: expire_invalid_records
-- Records that fail the lexicon.
delete from invalid_records where seen_at < :before;

-- name: erase_version_content
-- Content of versions that were overwritten long ago; what stays says that there was one.
update memory_versions set
    record = null, cid = null, scope = null, content_bytes = 0, content_sha256 = sha256(''::bytea),
    redacted_at = overwritten_at
where record is not null and overwritten_at < :before;

-- name: expire_account_statuses
-- Words on accounts whose first commit waited for a key, and that were never tracked.
delete from account_status a
where a.event_time < :before and not exists (select from repos r where r.repo = a.repo and r.space = '');

-- name: repos_tracked_since
-- Repos that somebody began to track, by any process.
select repo, tracked_at from repos where space = '' and tracked_at > :since order by tracked_at;

-- name: unasked
-- Repos whose identity nobody has to ask for.
select n.repo from unnest(:repos::text[]) as n (repo)
where not exists (select from requests r where (r.repo, r.space, r.kind) = (n.repo, '', 'identity'));

-- name: gauges
-- What metrics tell of the tables.
select
    (select count(*) from parked_commits) as parked_commits,
    (select count(*) from quarantine) as quarantined_frames;

-- name: open_requests_by_kind
-- What waits to be asked.
select kind, count(*) as requests from requests group by kind;
