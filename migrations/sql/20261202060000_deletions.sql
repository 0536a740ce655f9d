-- migrate:up

-- What was deleted, by hash: after a restore of a backup it is deleted again before anything is served. The repo stands
-- in the clear, as in `repos`, which outlives its contents too; which of its records it was does not.
create table deletions (
    repo text collate "C" not null,
    subject_sha256 bytea not null, -- of the record's at-uri, or of the DID if it was the whole repo
    deleted_at timestamptz not null, -- the newest, if it was deleted more than once
    primary key (repo, subject_sha256)
);
create index deletions_by_age on deletions (deleted_at);

-- What is sampled for the planner stands in the clear in `pg_stats`, longer than the rows that it is of. No plan needs
-- samples of these. Setting their type anew, to what it was, forgets those that were taken.
alter table memories
    alter column record type bytea, alter column record set statistics 0,
    alter column content type text, alter column content set statistics 0,
    alter column client type text, alter column client set statistics 0;
alter table memory_versions
    alter column record type bytea, alter column record set statistics 0,
    alter column scope type text, alter column scope set statistics 0;
alter table invalid_records alter column excerpt type bytea, alter column excerpt set statistics 0;
alter table parked_commits alter column frame type bytea, alter column frame set statistics 0;
alter table quarantine alter column frame type bytea, alter column frame set statistics 0;

-- migrate:down
