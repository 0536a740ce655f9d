-- name: load_erasure
-- When it was last seen to that what is gone is gone from the files too, and whether anything changed since. Counts begin
-- anew with the server.
select
    (select value from settings where name = 'erasure') as last,
    clock_timestamp() as now,
    (
        select coalesce(sum(n_tup_upd + n_tup_del), 0)::bigint || ' ' || extract(epoch from pg_postmaster_start_time())
        from pg_stat_user_tables
        where schemaname = 'public'
            and relname in (
                'memories', 'memory_versions', 'invalid_records', 'parked_commits', 'quarantine', 'embeddings',
                'embedding_requests', 'grants', 'credentials', 'spaces', 'space_repos', 'space_inbox', 'access_tokens'
            )
    ) as changes;

-- name: store_erasure
-- That it was seen to.
insert into settings (name, value) values ('erasure', :value) on conflict (name) do update set value = excluded.value;

-- name: try_lock_erasure
-- One process at a time; the lock is the session's.
select pg_try_advisory_lock(hashtextextended('memory erasure', 0));

-- name: unlock_erasure
-- Lets others.
select pg_advisory_unlock(hashtextextended('memory erasure', 0));

-- name: limit_lock_waits
-- How long this session waits for locks.
select set_config('lock_timeout', :timeout, false);

-- name: table_bytes
-- What each takes on disk, with its indexes.
select c.relname::text as name, pg_total_relation_size(c.oid) as bytes
from pg_class c
where c.oid = any(array[
    'memories'::regclass, 'memory_versions'::regclass, 'invalid_records'::regclass, 'parked_commits'::regclass,
    'quarantine'::regclass, 'embeddings'::regclass, 'embedding_requests'::regclass, 'pg_statistic'::regclass
]);

-- name: vacuum_contents
-- Forgets dead rows, whatever autovacuum thinks of their number, and samples anew.
vacuum (analyze, index_cleanup on)
    memories, memory_edges, memory_versions, invalid_records, parked_commits, quarantine, deletions, embeddings,
    embedding_requests, repos, requests, grants, credentials, spaces, space_repos, space_inbox, access_tokens;

-- name: vacuum_samples
-- Forgets samples of what was there before. Passed over with a warning where the database is somebody else's.
vacuum pg_statistic;

-- name: drop_broken_index
-- What a rebuild leaves that was broken off.
drop index concurrently if exists memories_public_terms_ccnew;

-- name: drop_replaced_index
-- What a rebuild leaves that was broken off late.
drop index concurrently if exists memories_public_terms_ccold;

-- name: rebuild_terms
-- A GIN index keeps every term that ever was in it: only a new one is without.
reindex index concurrently memories_public_terms;

-- name: rewrite_memories
-- Vacuum leaves what was in a page where it was, in the free space; only new files are without.
vacuum (full, analyze) memories;

-- name: rewrite_versions
-- As of memories.
vacuum (full, analyze) memory_versions;

-- name: rewrite_invalid_records
-- As of memories.
vacuum (full, analyze) invalid_records;

-- name: rewrite_parked_commits
-- As of memories.
vacuum (full, analyze) parked_commits;

-- name: rewrite_quarantine
-- As of memories.
vacuum (full, analyze) quarantine;

-- name: rewrite_embeddings
-- As of memories. Its indexes are without already: vacuum writes over the vectors in them.
vacuum (full, analyze) embeddings;

-- name: rewrite_embedding_requests
-- As of memories.
vacuum (full, analyze) embedding_requests;

-- name: rewrite_samples
-- As of memories. Passed over with a warning where the database is somebody else's.
vacuum (full) pg_statistic;
