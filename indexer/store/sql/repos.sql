-- name: insert_repos
-- Rows for repos that are tracked from now on; sorted, so that two writers never wait for each other in a circle.
insert into repos (repo, space, state, tracked_at, changed_at)
select r.repo, r.space, 'pending', r.at, r.at
from unnest(:repos::text[], :spaces::text[], :times::timestamptz[]) as r (repo, space, at)
order by r.repo, r.space
on conflict (repo, space) do nothing;

-- name: lock_repos
-- The rows that a batch is judged against, locked until it commits.
select repo, space, state, reason, rev, commit_cid, data_cid, visible, status,
    memory_count, memory_bytes, edge_count, over_quota_count, quota_edge, host, signing_key,
    tracked_at, changed_at
from repos
where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]))
order by repo, space
for update;

-- name: update_repos
-- What a batch leaves of its repos.
update repos r set
    state = n.state, reason = n.reason, rev = n.rev, commit_cid = n.commit_cid, data_cid = n.data_cid,
    visible = n.visible, status = n.status, memory_count = n.memory_count, memory_bytes = n.memory_bytes,
    edge_count = n.edge_count, over_quota_count = n.over_quota_count, quota_edge = n.quota_edge,
    host = n.host, signing_key = n.signing_key,
    changed_at = n.changed_at
from unnest(
    :repos::text[], :spaces::text[], :states::text[], :reasons::text[], :revs::text[], :commit_cids::text[],
    :data_cids::text[], :visibles::boolean[], :statuses::text[], :memory_counts::integer[], :memory_bytes::bigint[],
    :edge_counts::integer[], :over_quota_counts::integer[], :quota_edges::text[], :hosts::text[], :signing_keys::text[],
    :changed_ats::timestamptz[]
) as n (
    repo, space, state, reason, rev, commit_cid, data_cid, visible, status, memory_count, memory_bytes, edge_count,
    over_quota_count, quota_edge, host, signing_key, changed_at
)
where (r.repo, r.space) = (n.repo, n.space);

-- name: tracked_repos
-- Every DID that is tracked, for the set that filters the stream.
select distinct repo from repos where space = '';

-- name: account_statuses
-- What every source last said of these accounts.
select repo, source, source_kind, seq, active, status, event_time
from account_status
where repo = any(:repos::text[]);

-- name: upsert_account_statuses
-- A source's newer word on an account.
insert into account_status (repo, source, source_kind, seq, active, status, event_time)
select * from unnest(
    :repos::text[], :sources::text[], :source_kinds::text[], :seqs::bigint[], :actives::boolean[], :statuses::text[],
    :event_times::timestamptz[]
)
on conflict (repo, source) do update set
    source_kind = excluded.source_kind, seq = excluded.seq, active = excluded.active, status = excluded.status,
    event_time = excluded.event_time;

-- name: upsert_requests
-- Things to ask of a host; an earlier request stands for this one while its interval runs.
insert into requests (repo, space, kind, reason, requested_at, not_before)
select n.repo, n.space, n.kind, n.reason, n.at, n.at
from unnest(
    :repos::text[], :spaces::text[], :kinds::text[], :reasons::text[], :times::timestamptz[], :intervals::interval[]
) as n (repo, space, kind, reason, at, every)
where not exists (
    select from requests r
    where (r.repo, r.space, r.kind) = (n.repo, n.space, n.kind) and r.requested_at > n.at - n.every
)
order by n.repo, n.space, n.kind -- also of strangers, who have no row to lock
on conflict (repo, space, kind) do update set
    reason = excluded.reason, requested_at = excluded.requested_at;

-- name: delete_requests
-- Requests that are answered.
delete from requests r
using unnest(:repos::text[], :spaces::text[], :kinds::text[], :asked_ats::timestamptz[]) as n (repo, space, kind, asked_at)
where (r.repo, r.space, r.kind) = (n.repo, n.space, n.kind) and (n.asked_at is null or r.requested_at <= n.asked_at);

-- name: open_requests
-- What waits to be asked about these repos.
select repo, kind
from requests
where space = '' and repo = any(:repos::text[]);

-- name: purge_memories
-- All memories of these repos.
delete from memories where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_edges
-- All edges of these repos.
delete from memory_edges where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_versions
-- All versions of these repos.
delete from memory_versions where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_invalid_records
-- All invalid records of these repos.
delete from invalid_records where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_parked_commits
-- All parked commits of these repos.
delete from parked_commits where repo = any(:repos::text[]);

-- name: ping
-- Whether the database answers.
select 1;
