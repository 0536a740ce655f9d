-- name: held_records
-- What is held at these record keys, whether or not there is a row.
select k.repo, k.space, k.rkey, m.cid, m.version, m.effective_at, m.first_indexed_at,
    coalesce(octet_length(m.record), 0) as record_bytes, m.component,
    coalesce((
        select array_agg(e.target) from memory_edges e where (e.repo, e.space, e.rkey) = (k.repo, k.space, k.rkey)
    ), '{}') as targets,
    exists (
        select from memory_edges e where (e.repo, e.space, e.target) = (k.repo, k.space, k.rkey)
    ) as replaced,
    coalesce(v.number, 0) as last_number, v.operation as last_operation, i.cid as invalid_cid,
    coalesce(m.content_bytes, 0) as content_bytes, m.masked_from is not null as masked
from unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey)
left join memories m on (m.repo, m.space, m.rkey) = (k.repo, k.space, k.rkey)
left join invalid_records i on (i.repo, i.space, i.rkey) = (k.repo, k.space, k.rkey)
left join lateral (
    select number, operation from memory_versions v
    where (v.repo, v.space, v.rkey) = (k.repo, k.space, k.rkey)
    order by number desc limit 1
) v on true;

-- name: keep_overwritten
-- The held content moves into its version, before the new content takes its place.
update memory_versions v set record = m.record, overwritten_at = k.at
from unnest(:repos::text[], :spaces::text[], :rkeys::text[], :times::timestamptz[]) as k (repo, space, rkey, at)
join memories m on (m.repo, m.space, m.rkey) = (k.repo, k.space, k.rkey)
where (v.repo, v.space, v.rkey, v.number) = (m.repo, m.space, m.rkey, m.version);

-- name: redact_versions
-- Every version at these record keys is erased; what stays says only that there was one.
update memory_versions v set
    record = null, cid = null, scope = null, content_bytes = 0, content_sha256 = sha256(''::bytea), redacted_at = k.at
from unnest(:repos::text[], :spaces::text[], :rkeys::text[], :times::timestamptz[]) as k (repo, space, rkey, at)
where (v.repo, v.space, v.rkey) = (k.repo, k.space, k.rkey) and v.redacted_at is null;

-- name: insert_versions
-- Observed states, and the hashes that their ids are made of, which outlive their CIDs.
insert into memory_versions (
    repo, space, rkey, number, operation, cid, scope, content_bytes, content_sha256, record, observed_at,
    overwritten_at, redacted_at, id_hash
)
select
    n.repo, n.space, n.rkey, n.number, n.operation, n.cid, n.scope, n.content_bytes, n.content_sha256, n.record,
    n.observed_at, n.overwritten_at, n.redacted_at,
    substring(sha256((
        case when n.space = '' then 'at://' || n.repo else n.space || '/' || n.repo end
        || '/dev.bastienrobert.memory.record/' || n.rkey
        || '#' || n.number || ' ' || n.operation || ' ' || n.named_cid
    )::bytea) for 16)
from unnest(
    :repos::text[], :spaces::text[], :rkeys::text[], :numbers::integer[], :operations::text[], :cids::text[],
    :scopes::text[], :content_bytes::integer[], :content_sha256s::bytea[], :records::bytea[],
    :observed_ats::timestamptz[], :overwritten_ats::timestamptz[], :redacted_ats::timestamptz[], :named_cids::text[]
) as n (
    repo, space, rkey, number, operation, cid, scope, content_bytes, content_sha256, record, observed_at,
    overwritten_at, redacted_at, named_cid
);

-- name: delete_memories
-- Memories that are no more, taken off their repos' counts.
with gone as (
    delete from memories
    where (repo, space, rkey) in (select * from unnest(:repos::text[], :spaces::text[], :rkeys::text[]))
    returning repo, space, content_bytes, masked_from
), lost as (
    select repo, space, count(*) as entries, sum(content_bytes) as content_bytes
    from gone
    where masked_from is null
    group by repo, space
)
update repos r set entry_count = r.entry_count - l.entries, entry_bytes = r.entry_bytes - l.content_bytes
from lost l
where (r.repo, r.space) = (l.repo, l.space);

-- name: upsert_memories
-- Memories as they are now; masks are computed after.
insert into memories (
    repo, space, rkey, cid, rev, record, content, kind, scope, agent, client, created_at, updated_at, first_indexed_at,
    indexed_at, effective_at, occurred_from, occurred_to, version, content_bytes, terms, term_count
)
select
    n.repo, n.space, n.rkey, n.cid, n.rev, n.record, n.content, n.kind, n.scope, n.agent, n.client, n.created_at,
    n.updated_at, n.first_indexed_at, n.indexed_at, least(n.created_at, n.first_indexed_at), n.occurred_from,
    n.occurred_to, n.version, n.content_bytes, n.terms::tsvector, n.term_count
from unnest(
    :repos::text[], :spaces::text[], :rkeys::text[], :cids::text[], :revs::text[], :records::bytea[], :contents::text[],
    :kinds::text[], :scopes::text[], :agents::text[], :clients::text[], :created_ats::timestamptz[],
    :updated_ats::timestamptz[], :first_indexed_ats::timestamptz[], :indexed_ats::timestamptz[],
    :occurred_froms::timestamptz[], :occurred_tos::timestamptz[], :versions::integer[], :content_bytes::integer[],
    :terms::text[], :term_counts::integer[]
) as n (
    repo, space, rkey, cid, rev, record, content, kind, scope, agent, client, created_at, updated_at, first_indexed_at,
    indexed_at, occurred_from, occurred_to, version, content_bytes, terms, term_count
)
on conflict (repo, space, rkey) do update set
    cid = excluded.cid, rev = excluded.rev, record = excluded.record, content = excluded.content, kind = excluded.kind,
    scope = excluded.scope, agent = excluded.agent, client = excluded.client, created_at = excluded.created_at,
    updated_at = excluded.updated_at, first_indexed_at = excluded.first_indexed_at, indexed_at = excluded.indexed_at,
    effective_at = excluded.effective_at, occurred_from = excluded.occurred_from, occurred_to = excluded.occurred_to,
    version = excluded.version, content_bytes = excluded.content_bytes, terms = excluded.terms,
    term_count = excluded.term_count;

-- name: delete_edges
-- Edges of records whose entries changed.
delete from memory_edges
where (repo, space, rkey) in (select * from unnest(:repos::text[], :spaces::text[], :rkeys::text[]));

-- name: insert_edges
-- Entries that point into the same repo and Space.
insert into memory_edges (repo, space, rkey, target)
select * from unnest(:repos::text[], :spaces::text[], :rkeys::text[], :targets::text[]);

-- name: delete_invalid_records
-- Records that are no longer invalid, or no more.
delete from invalid_records
where (repo, space, rkey) in (select * from unnest(:repos::text[], :spaces::text[], :rkeys::text[]));

-- name: upsert_invalid_records
-- Records that fail the lexicon.
insert into invalid_records (repo, space, rkey, cid, reason, excerpt, seen_at)
select * from unnest(
    :repos::text[], :spaces::text[], :rkeys::text[], :cids::text[], :reasons::text[], :excerpts::bytea[],
    :seen_ats::timestamptz[]
)
on conflict (repo, space, rkey) do update set
    cid = excluded.cid, reason = excluded.reason, excerpt = excluded.excerpt, seen_at = excluded.seen_at;

-- name: drop_last_invalid_records
-- The invalid records with the greatest rkeys: a repo has so many too many.
delete from invalid_records
where (repo, space, rkey) in (
    select repo, space, rkey from invalid_records
    where repo = :repo and space = :space
    order by rkey desc
    limit :count
)
returning rkey;

-- name: drop_invalid_records_from
-- The invalid records at a quota edge and behind it.
delete from invalid_records where repo = :repo and space = :space and rkey >= :edge returning rkey;

-- name: last_memories
-- The memories with the greatest rkeys, and what each takes of a quota.
select m.rkey, octet_length(m.record) as record_bytes,
    array(
        select e.target from memory_edges e where (e.repo, e.space, e.rkey) = (m.repo, m.space, m.rkey)
    ) as targets
from memories m
where m.repo = :repo and m.space = :space
order by m.rkey desc
limit :count;

-- name: forget_versions
-- Versions of records that the quota keeps out: they are not indexed at all.
delete from memory_versions
where repo = :repo and space = :space and rkey = any(:rkeys::text[]);

-- name: analyze
-- What plans are made of.
analyze memories, memory_edges, memory_versions, invalid_records, repos;
