-- migrate:up

-- A repo as a memory store. The counts are kept in the transaction of whatever writes or masks a memory.
alter table repos
    add column entry_count integer not null default 0, -- memories that none masks
    add column entry_bytes bigint not null default 0, -- their contents as UTF-8
    add column first_indexed_at timestamptz, -- when its contents were first known; null: not yet
    add column status_changed_at timestamptz; -- when `visible` or `status` last became another; null: never
update repos set first_indexed_at = tracked_at where data_cid is not null or memory_count > 0;
update repos r set entry_count = c.entries, entry_bytes = c.content_bytes
from (
    select repo, space, count(*) as entries, sum(content_bytes) as content_bytes
    from memories
    where masked_from is null
    group by repo, space
) c
where (r.repo, r.space) = (c.repo, c.space);
update repos set status_changed_at = changed_at where not visible;

-- Ids of the memory-store face are the first 128 bits of SHA-256. A store's and a memory's are of its at-uri, which no
-- column holds: these expressions stand in the statements that look them up, too.
create index repos_by_id on repos (
    (substring(sha256((case when space = '' then 'at://' || repo else space || '/' || repo end)::bytea) for 16))
);
-- Every record that was ever a memory has a version 1, also after its deletion.
create index memory_versions_by_memory_id on memory_versions (
    repo, space,
    (substring(sha256((
        case when space = '' then 'at://' || repo else space || '/' || repo end
        || '/dev.bastienrobert.memory.record/' || rkey
    )::bytea) for 16))
) where number = 1;

-- A version's id is a hash of its at-uri, number, operation and CID. It is kept, for it outlives the CID.
alter table memory_versions add column id_hash bytea;
update memory_versions set id_hash = substring(sha256((
    case when space = '' then 'at://' || repo else space || '/' || repo end
    || '/dev.bastienrobert.memory.record/' || rkey || '#' || number || ' ' || operation || ' ' || coalesce(cid, '')
)::bytea) for 16);
alter table memory_versions alter column id_hash set not null;
create index memory_versions_by_id on memory_versions (repo, space, id_hash);
create index memory_versions_by_time on memory_versions (repo, space, observed_at, rkey, number);

-- Stores in order of age, and by the DID that they begin with.
create index repos_public_by_age on repos (first_indexed_at, repo) where space = '';
create index repos_in_space_by_age on repos (space, first_indexed_at, repo) where space <> '';
create index repos_by_lower_did on repos (lower(repo));

-- Every commit updates its repo's row: with room in the page, no index has to know.
alter table repos set (fillfactor = 70);

-- 244 random bits: ids of what is not public are of no meaning without it. APPVIEW_ID_KEY takes its place.
insert into settings values ('id_key', encode(sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex'));

-- migrate:down
