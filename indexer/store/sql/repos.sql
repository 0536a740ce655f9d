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
    tracked_at, changed_at, fetch_token, fetch_after, latest_asked_at, audited_at, hastened_at, invalid_count,
    invalid_edge, first_indexed_at, status_changed_at
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
    host = n.host, signing_key = n.signing_key, changed_at = n.changed_at, fetch_token = n.fetch_token,
    fetch_after = n.fetch_after, latest_asked_at = n.latest_asked_at, audited_at = n.audited_at,
    hastened_at = n.hastened_at, invalid_count = n.invalid_count, invalid_edge = n.invalid_edge,
    first_indexed_at = n.first_indexed_at, status_changed_at = n.status_changed_at,
    entry_count = r.entry_count + n.entries_added, entry_bytes = r.entry_bytes + n.entry_bytes_added,
    -- once something of it was verified, or a host knows it, it is no invention of whoever listed it
    listed_by = case when n.rev is null and n.visible then r.listed_by end
from unnest(
    :repos::text[], :spaces::text[], :states::text[], :reasons::text[], :revs::text[], :commit_cids::text[],
    :data_cids::text[], :visibles::boolean[], :statuses::text[], :memory_counts::integer[], :memory_bytes::bigint[],
    :edge_counts::integer[], :over_quota_counts::integer[], :quota_edges::text[], :hosts::text[], :signing_keys::text[],
    :changed_ats::timestamptz[], :fetch_tokens::uuid[], :fetch_afters::timestamptz[],
    :latest_asked_ats::timestamptz[], :audited_ats::timestamptz[], :hastened_ats::timestamptz[],
    :invalid_counts::integer[], :invalid_edges::text[], :first_indexed_ats::timestamptz[],
    :status_changed_ats::timestamptz[], :entries_added::integer[], :entry_bytes_added::bigint[]
) as n (
    repo, space, state, reason, rev, commit_cid, data_cid, visible, status, memory_count, memory_bytes, edge_count,
    over_quota_count, quota_edge, host, signing_key, changed_at, fetch_token, fetch_after, latest_asked_at, audited_at,
    hastened_at, invalid_count, invalid_edge, first_indexed_at, status_changed_at, entries_added, entry_bytes_added
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
) as n (repo, source, source_kind, seq, active, status, event_time)
order by n.repo, n.source -- also of strangers, who have no row to lock
on conflict (repo, source) do update set
    source_kind = excluded.source_kind, seq = excluded.seq, active = excluded.active, status = excluded.status,
    event_time = excluded.event_time;

-- name: upsert_requests
-- Things to ask of a host or directory. What is asked again is asked later, whoever's clock says when: an answer that
-- is under way does not count for it.
-- A clock that is ahead puts nothing off: what is due is told by the database's.
insert into requests (repo, space, kind, reason, requested_at, not_before, tracked, host)
select n.repo, n.space, n.kind, n.reason, n.at, least(n.at, clock_timestamp()),
    t.repo is not null or exists (select from space_repos p where p.repo = n.repo),
    coalesce(t.host, '')
from unnest(:repos::text[], :spaces::text[], :kinds::text[], :reasons::text[], :times::timestamptz[])
    as n (repo, space, kind, reason, at)
left join repos t on (t.repo, t.space) = (n.repo, n.space)
order by n.repo, n.space, n.kind -- also of strangers, who have no row to lock
on conflict (repo, space, kind) do update set
    -- an identity that has to be renewed has to be, however many commits wait for its key meanwhile
    reason = case
        when (excluded.kind, excluded.reason) = ('identity', 'key_unknown') and requests.reason <> 'handle_unsettled'
        then requests.reason else excluded.reason
    end,
    requested_at = greatest(excluded.requested_at, requests.requested_at + interval '1 microsecond'),
    tracked = excluded.tracked;

-- name: hasten_requests
-- What waits because it failed waits no longer; locked in order. What is due soon is left alone, for it may be a claim:
-- somebody works on it just now.
update requests r set not_before = least(h.at, clock_timestamp())
from (
    select q.repo, q.space, q.kind, n.at
    from unnest(:repos::text[], :spaces::text[], :kinds::text[], :times::timestamptz[]) as n (repo, space, kind, at)
    join requests q on (q.repo, q.space, q.kind) = (n.repo, n.space, n.kind)
    where q.not_before > n.at + :soon::interval
    order by q.repo, q.space, q.kind
    for update of q
) h
where (r.repo, r.space, r.kind) = (h.repo, h.space, h.kind);

-- name: lock_requests
-- Rows that a batch will delete or write, sorted: strangers have no row in `repos` to lock.
select from requests
where (repo, space, kind) in (select * from unnest(:repos::text[], :spaces::text[], :kinds::text[]))
order by repo, space, kind
for update;

-- name: delete_requests
-- Requests that are answered, locked in order. What was asked for again since is due now: its claim has ended.
with answered as (
    select r.repo, r.space, r.kind, n.asked_at, r.requested_at > n.asked_at as asked_again
    from (
        select repo, space, kind, max(coalesce(asked_at, 'infinity')) as asked_at
        from unnest(:repos::text[], :spaces::text[], :kinds::text[], :asked_ats::timestamptz[])
            as each (repo, space, kind, asked_at)
        group by repo, space, kind
    ) n
    join requests r on (r.repo, r.space, r.kind) = (n.repo, n.space, n.kind)
    order by r.repo, r.space, r.kind
    for update of r
), due as (
    update requests r set not_before = least(a.asked_at, clock_timestamp()), attempts = 0, failure = null
    from answered a
    where (r.repo, r.space, r.kind) = (a.repo, a.space, a.kind) and a.asked_again
)
delete from requests r
using answered a
where (r.repo, r.space, r.kind) = (a.repo, a.space, a.kind) and not a.asked_again;

-- name: open_requests
-- What waits to be asked about these repos.
select repo, kind, reason
from requests
where space = '' and repo = any(:repos::text[]);

-- name: purge_memories
-- All memories of these repos, and what they counted.
with emptied as (
    update repos set entry_count = 0, entry_bytes = 0
    where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[])) and entry_count > 0
)
delete from memories where (repo, space) in (select * from unnest(:repos, :spaces));

-- name: purge_embeddings
-- All vectors of these repos.
delete from embeddings where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_embedding_requests
-- All that waits for vectors in these repos.
delete from embedding_requests where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_edges
-- All edges of these repos.
delete from memory_edges where (repo, space) in (select * from unnest(:repos::text[], :spaces::text[]));

-- name: purge_access_tokens
-- All access tokens of these accounts: their names are the owner's words too.
delete from access_tokens where repo = any(:repos::text[]);

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
