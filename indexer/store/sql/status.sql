-- name: memory_counts
-- What the index holds of visible repos: served by default, masked, invalid.
select
    (select count(*) from memories m join repos r using (repo, space) where r.visible and m.masked_from is null)
        as current,
    (select count(*) from memories m join repos r using (repo, space) where r.visible and m.masked_from is not null)
        as masked,
    (select count(*) from invalid_records i join repos r using (repo, space) where r.visible) as invalid;

-- name: repos_by_state
-- How many repos are in which state, and why; hidden ones apart.
select state, reason, visible, status, count(*) as repos, coalesce(sum(memory_count), 0)::bigint as memories,
    coalesce(sum(over_quota_count), 0)::bigint as over_quota
from repos
group by state, reason, visible, status
order by state, reason nulls first, visible desc, status nulls first;

-- name: invalid_by_reason
-- Records that fail the lexicon, by reason.
select reason, count(*) as records from invalid_records group by reason order by reason;

-- name: rejections
-- What was not applied, by source, reason and effect.
select source, reason, effect, times, last_at from rejections order by source, reason, effect;

-- name: open_request_counts
-- What waits to be asked of hosts and directories.
select kind, reason, count(*) as requests, min(requested_at) as oldest, min(not_before) as due_since
from requests
group by kind, reason
order by kind, reason;

-- name: fetch_counts
-- Fetches that wait for their first attempt, and those that are under way; when a host last confirmed what is held.
select
    (select count(*) from requests where kind = 'fetch' and space = '' and attempts = 0 and failure is null) as waiting,
    (select count(*) from repos where state = 'resyncing' and space = '') as under_way,
    (select max(audited_at) from repos where space = '') as confirmed_at;

-- name: failed_fetches
-- Fetches that failed and wait for their next attempt.
select failure, count(*) as repos, min(not_before) as next_attempt
from requests
where kind = 'fetch' and space = '' and failure is not null
group by failure
order by count(*) desc, failure;

-- name: gaps
-- Sources that lost frames, and for how many of the repos that may be concerned their hosts were asked since.
select source, gap_at,
    (select count(*) from repos where space = '' and repo <= s.gap_compared_to) as asked,
    (select count(*) from repos where space = '') as repos
from sources s
where gap_at is not null
order by source;

-- name: unfinished_sweeps
-- Searches for repos that have not come to their end.
select origin, repos_found, started_at, updated_at, held_up_at
from discoveries
where finished_at is null
order by origin;

-- name: erasure
-- When it was last seen to that what was deleted is gone from the files too; null: never, though it may be in use.
select
    (select split_part(value, ' ', 1)::timestamptz from settings where name = 'erasure') as last_at,
    pg_postmaster_start_time() as server_started_at,
    exists (select from repos) as in_use,
    clock_timestamp() as now;

-- name: embedding_status
-- Models of search by meaning, and how many memories wait for their vectors.
select m.model, m.state, m.dimensions, m.walks,
    (select count(*) from embedding_requests r where r.model = m.model) as waiting,
    (select count(*) from embedding_requests r where r.model = m.model and r.lane = 2) as failing
from embedding_models m
order by m.state <> 'serving', m.added_at, m.model;

-- name: backlog
-- Frames that are kept aside.
select
    (select count(*) from parked_commits) as parked_commits,
    (select count(*) from parked_commits where reason = 'resyncing') as parked_for_fetch,
    (select coalesce(sum(octet_length(frame)), 0) from parked_commits)::bigint as parked_bytes,
    (select count(*) from quarantine) as quarantined_frames;

-- name: followed_sources
-- How far each source's stream is covered, who follows it, and what became of it.
select s.source, s.seq, s.frame_time, s.updated_at, s.stopped_reason, s.gap_at,
    coalesce(l.expires_at > now(), false) as followed
from sources s
left join leases l using (source)
order by s.source;
