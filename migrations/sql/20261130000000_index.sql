-- migrate:up

-- Conventions: `repo` (a DID) leads every key of a table that grows with users, so that Citus can distribute by it;
-- `space` is '' for public records and the Space's at-uri for permissioned ones; identifiers are COLLATE "C", because code
-- compares bytes. No foreign keys, sequences or triggers.

-- One row a stream that is followed. `seq` is the cursor: nothing at or below it is unfinished.
create table sources (
    source text collate "C" primary key, -- normalised URL, `http(s)://authority`
    seq bigint not null,
    frame_time timestamptz, -- of the frame at the cursor, as its sender claims
    updated_at timestamptz not null
);

-- One row a (Space, author). The rev gate: it outlives the rows, so that no late replay resurrects anything.
create table repos (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    state text collate "C" not null check (state in ('pending', 'resyncing', 'active', 'desynchronized', 'error')),
    reason text collate "C", -- why it is not `active`
    rev text collate "C", -- last applied; null: nothing applied yet
    commit_cid text collate "C",
    data_cid text collate "C", -- null after a purge: contents are unknown until a fetch
    visible boolean not null default true, -- by the account's status at its sources
    status text collate "C", -- explains `visible`: deactivated, suspended, takendown, deleted, …
    memory_count integer not null default 0, -- rows in `memories`
    memory_bytes bigint not null default 0, -- their record blocks
    edge_count integer not null default 0, -- their rows in `memory_edges`
    over_quota_count integer not null default 0, -- memories that the quota keeps out
    quota_edge text collate "C", -- from this rkey on, memories are kept out; null: none is
    tracked_at timestamptz not null,
    changed_at timestamptz not null, -- last applied commit or change of state
    primary key (repo, space)
);
create index repos_by_state on repos (state) where state <> 'active';

-- What each source last said of an account. A relay's word always counts; a PDS's only while the DID document names it.
create table account_status (
    repo text collate "C" not null,
    source text collate "C" not null,
    source_kind text collate "C" not null check (source_kind in ('relay', 'pds')),
    seq bigint not null,
    active boolean not null,
    status text collate "C",
    event_time timestamptz not null,
    primary key (repo, source)
);

-- Cached DID documents. `resolved_at` orders them: an older one never replaces a newer.
create table identities (
    repo text collate "C" primary key, -- the DID
    handle text collate "C", -- verified both ways, else null
    host text collate "C", -- normalised URL of the PDS
    signing_key text collate "C", -- did:key of #atproto
    tombstoned boolean not null default false,
    resolved_at timestamptz not null
);
create index identities_by_handle on identities (handle) where handle is not null;

-- The current, valid memories within quota. `record` is the truth; all else is derived from it.
create table memories (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    rkey text collate "C" not null,
    cid text collate "C" not null,
    rev text collate "C" not null,
    record bytea not null, -- the block, DAG-CBOR
    content text not null, -- NUL replaced by U+FFFD
    kind text, -- null = absent
    scope text,
    agent text, -- provenance.agent
    client text, -- provenance.client
    created_at timestamptz not null, -- the author's claim
    updated_at timestamptz, -- the author's claim
    first_indexed_at timestamptz not null,
    indexed_at timestamptz not null,
    effective_at timestamptz not null, -- min(created_at, first_indexed_at)
    occurred_from timestamptz, -- half-open span [from, to)
    occurred_to timestamptz,
    version integer not null, -- number of the current version
    content_bytes integer not null, -- of the content as UTF-8
    terms tsvector not null, -- tokens of memory.terms, positions from 1
    term_count integer not null, -- its words, variants not counted
    masked_from timestamptz, -- earliest effective time of a replacer; null = visible
    masked_spans tstzmultirange, -- only members of a cycle: every T at which it is masked
    component text collate "C", -- only members of a cycle: the component's newest rkey
    primary key (repo, space, rkey)
);
create index memories_by_time on memories (repo, space, effective_at, rkey);
create index memories_public_by_time on memories (effective_at, repo, rkey) where space = '';
create index memories_public_by_occurrence on memories (occurred_from, repo, rkey) where space = '';
create index memories_public_terms on memories using gin (terms) where space = '';
create index memories_components on memories (repo, space, component) where component is not null;

-- `supersedes` entries that point into the same repo and Space, of current valid memories.
create table memory_edges (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    rkey text collate "C" not null, -- the newer memory
    target text collate "C" not null, -- the rkey that it replaces; need not exist
    upward boolean not null default false, -- the target exists and is not older than its source
    ignored boolean not null default false, -- by the rule for cycles
    primary key (repo, space, rkey, target)
);
create index memory_edges_by_target on memory_edges (repo, space, target, rkey);
create index memory_edges_upward on memory_edges (repo, space) where upward;

-- Observed states of one record: created, updated, deleted.
create table memory_versions (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    rkey text collate "C" not null,
    number integer not null, -- from 1; goes on when an rkey is created again
    operation text collate "C" not null check (operation in ('created', 'updated', 'deleted')),
    cid text collate "C", -- null once redacted
    scope text, -- null once redacted
    content_bytes integer not null, -- 0 once redacted
    content_sha256 bytea not null, -- of the empty string once redacted
    record bytea, -- only of overwritten versions; the current one's stands in `memories`
    observed_at timestamptz not null,
    overwritten_at timestamptz,
    redacted_at timestamptz,
    primary key (repo, space, rkey, number)
);
create index memory_versions_with_content on memory_versions (overwritten_at) where record is not null;

-- What fails the lexicon: never served, masks nothing, kept for a week.
create table invalid_records (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    rkey text collate "C" not null,
    cid text collate "C" not null,
    reason text collate "C" not null,
    excerpt bytea not null, -- the first 4 kB of the block
    seen_at timestamptz not null,
    primary key (repo, space, rkey)
);
create index invalid_records_by_age on invalid_records (seen_at);

-- Commits that cannot be judged now (their key is unknown), whole frames in order of rev.
create table parked_commits (
    repo text collate "C" not null,
    rev text collate "C" not null,
    source text collate "C" not null,
    seq bigint not null,
    frame bytea not null,
    reason text collate "C" not null,
    parked_at timestamptz not null,
    primary key (repo, rev, source)
);
create index parked_commits_by_age on parked_commits (parked_at);

-- What must be asked of a host or directory, durably: fetch (getRepo), latest_commit, repo_status, confirm_deletion, identity.
create table requests (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    kind text collate "C" not null check (kind in ('fetch', 'latest_commit', 'repo_status', 'confirm_deletion', 'identity')),
    reason text collate "C" not null,
    requested_at timestamptz not null,
    not_before timestamptz not null,
    attempts integer not null default 0,
    primary key (repo, space, kind)
);
create index requests_by_time on requests (not_before);

-- Bytes that are no frame.
create table quarantine (
    source text collate "C" not null,
    sha256 bytea not null,
    previous_seq bigint not null,
    frame bytea not null,
    reason text collate "C" not null,
    times_met integer not null default 1,
    first_met_at timestamptz not null,
    last_met_at timestamptz not null,
    primary key (source, sha256, previous_seq)
);
create index quarantine_by_age on quarantine (last_met_at);

-- Counters of what was not applied, in the transaction of the cursor.
create table rejections (
    source text collate "C" not null,
    reason text collate "C" not null,
    effect text collate "C" not null,
    times bigint not null,
    last_at timestamptz not null,
    primary key (source, reason, effect)
);

-- Secrets and choices of this index that all processes share.
create table settings (
    name text collate "C" primary key,
    value text not null
);
-- 244 random bits: authenticates page cursors, so that every API process accepts every other's.
insert into settings values ('page_cursor_key', encode(sha256((gen_random_uuid()::text || gen_random_uuid()::text)::bytea), 'hex'));

-- migrate:down
