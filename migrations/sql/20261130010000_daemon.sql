-- migrate:up

-- One reader a source: whoever holds the lease follows it, the others stand by.
create table leases (
    source text collate "C" primary key,
    holder uuid not null, -- one running daemon
    expires_at timestamptz not null -- by the database's clock
);

alter table sources
    add column stopped_reason text collate "C", -- it cannot go on without an operator
    add column gap_at timestamptz; -- frames were lost since: every tracked repo has to be compared

-- The host and key that were last acted upon, so that a change is seen whoever refreshed `identities` first.
alter table repos
    add column host text collate "C",
    add column signing_key text collate "C";
create index repos_by_tracking on repos (tracked_at) where space = '';

-- What an operator took down: the sha-256 of a DID or at-uri. It outlives the rows, and a rebuild.
create table denials (
    subject_sha256 bytea primary key,
    denied_at timestamptz not null
);

-- migrate:down
