-- name: cursors
-- How far each source's stream is covered.
select source, seq, frame_time, updated_at from sources order by source;

-- name: advance_cursors
-- In the transaction of what they cover.
insert into sources (source, seq, frame_time, updated_at)
select n.source, n.seq, n.frame_time, :now::timestamptz
from unnest(:sources::text[], :seqs::bigint[], :frame_times::timestamptz[]) as n (source, seq, frame_time)
order by n.source
on conflict (source) do update set
    seq = excluded.seq, frame_time = coalesce(excluded.frame_time, sources.frame_time), updated_at = excluded.updated_at
where sources.seq < excluded.seq;

-- name: count_rejections
-- What was not applied, by reason and effect.
insert into rejections (source, reason, effect, times, last_at)
select n.source, n.reason, n.effect, n.times, :now::timestamptz
from unnest(:sources::text[], :reasons::text[], :effects::text[], :times::bigint[]) as n (source, reason, effect, times)
order by n.source, n.reason, n.effect
on conflict (source, reason, effect) do update set
    times = rejections.times + excluded.times, last_at = excluded.last_at;

-- name: quarantine_frames
-- Bytes that are no frame, and how often they were met. Of what nobody waits for, a source has so many rows at most.
insert into quarantine (source, sha256, previous_seq, frame, reason, first_met_at, last_met_at)
select n.source, sha256(n.frame), n.previous_seq, n.frame, n.reason, n.at, n.at
from unnest(:sources::text[], :previous_seqs::bigint[], :frames::bytea[], :reasons::text[], :times::timestamptz[])
    as n (source, previous_seq, frame, reason, at)
where n.reason = any(:met_again::text[]) -- how often such a one was met decides what is done
    or (select count(*) from (select from quarantine q where q.source = n.source limit :rows_max) held) < :rows_max
order by n.source, sha256(n.frame), n.previous_seq
on conflict (source, sha256, previous_seq) do update set
    times_met = quarantine.times_met + 1, last_met_at = excluded.last_met_at;

-- name: parked_bytes
-- How much is parked in all, and of repos that are not tracked.
select coalesce(sum(octet_length(p.frame)), 0)::bigint as total,
    coalesce(sum(octet_length(p.frame)) filter (where r.repo is null), 0)::bigint as strangers
from parked_commits p
left join repos r on r.repo = p.repo and r.space = '';

-- name: parked_commits
-- What is parked of these repos.
select repo, rev, source, octet_length(frame) as bytes from parked_commits where repo = any(:repos::text[]);

-- name: park_commits
-- Whole frames, to be judged once their author's key is known.
insert into parked_commits (repo, rev, source, seq, frame, reason, parked_at)
select * from unnest(
    :repos::text[], :revs::text[], :sources::text[], :seqs::bigint[], :frames::bytea[], :reasons::text[],
    :times::timestamptz[]
) as n (repo, rev, source, seq, frame, reason, at)
order by n.repo, n.rev, n.source -- strangers have no row to lock: two writers must not wait in a circle here
on conflict (repo, rev, source) do nothing;

-- name: parked_repos
-- Who has commits that wait for a key.
select distinct repo from parked_commits where reason <> :resyncing limit :at_most;

-- name: parked_frames
-- The commits of a repo that wait for a fetch, or for a key, in order; up to so many bytes and at least one.
select rev, source, seq, frame
from (
    select rev, source, seq, frame,
        sum(octet_length(frame)) over (order by rev, seq, source rows unbounded preceding) - octet_length(frame) as before
    from parked_commits
    where repo = :repo and (reason = :resyncing) = :for_fetch::boolean
) p
where before < :bytes_max
order by rev, seq, source;

-- name: waiting_commits
-- Which commits of a repo wait for a fetch, in order.
select rev, source, seq from parked_commits
where repo = :repo and reason = :resyncing
order by rev, seq, source;

-- name: unpark_commits
-- Parked commits that are judged in the same transaction; locked in order, for strangers have no row to lock.
with judged as (
    select repo, rev, source
    from parked_commits
    where (repo, rev, source) in (select * from unnest(:repos::text[], :revs::text[], :sources::text[]))
    order by repo, rev, source
    for update
)
delete from parked_commits p using judged j
where (p.repo, p.rev, p.source) = (j.repo, j.rev, j.source);
