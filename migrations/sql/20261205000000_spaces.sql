-- migrate:up

-- Which viewer may read which Space, through which access token, until when. The API writes it.
create table grants (
    repo text collate "C" not null, -- the viewer's DID
    token text collate "C" not null, -- the id of the access token
    space text collate "C" not null,
    granted_at timestamptz not null,
    expires_at timestamptz not null,
    primary key (repo, token, space)
);
create index grants_by_space on grants (space, granted_at);
create index grants_by_expiry on grants (expires_at);

-- What reads a Space at its hosts, sealed; the API writes it beside the grant, the indexer reads with it.
create table credentials (
    repo text collate "C" not null, -- the viewer's DID
    token text collate "C" not null,
    space text collate "C" not null,
    sealed bytea not null, -- of memory/space_credential.py
    key_id text collate "C" not null, -- of the key that sealed it
    expires_at timestamptz not null,
    primary key (repo, token, space)
);
alter table credentials alter column sealed set statistics 0;
create index credentials_by_space on credentials (space, expires_at);
create index credentials_by_expiry on credentials (expires_at);

-- Spaces that somebody opened. Only the indexer writes it; times are of the database's clock.
create table spaces (
    repo text collate "C" not null, -- the authority's DID
    space text collate "C" not null,
    state text collate "C" not null default 'syncing' check (state in ('syncing', 'ready', 'deleted')),
    opened_at timestamptz not null,
    fresh_until timestamptz not null default 'epoch', -- until then it may be served
    listed_at timestamptz, -- when the last complete listing of its writers began
    sweep_after timestamptz not null default 'epoch', -- its writers are not listed before
    due_at timestamptz not null default 'epoch', -- when there is something to do, or a claim ends
    claim_token uuid, -- of the last who worked on it
    claimed_until timestamptz not null default 'epoch',
    attempts integer not null default 0, -- to list its writers, that failed on end
    failure text collate "C", -- why the last of them did
    registered_until timestamptz, -- until then its host tells us of writes
    register_after timestamptz not null default 'epoch',
    credentialed_until timestamptz not null, -- until then there was, or will be, a credential
    deleted_at timestamptz, -- what was granted or held until then goes
    primary key (repo, space)
);
create index spaces_by_time on spaces (due_at);

-- What authors hold in Spaces, as far as it is not in `repos`, which readers use.
create table space_repos (
    repo text collate "C" not null, -- the author's DID
    space text collate "C" not null,
    listed_rev text collate "C", -- where its Space's host says that it stands; null: it is not listed
    listed_hash bytea,
    in_step boolean not null default false, -- what is held has the hash that was listed
    rev text collate "C", -- of what is held; null: nothing was pulled yet
    hash bytea,
    set_state bytea,
    confirmed_at timestamptz, -- when what is held was last what its host has; in step, `spaces.listed_at` if that is later
    hidden text collate "C" check (hidden in ('unlisted', 'stale')), -- why it is not served; null: it is
    account_active boolean not null default true,
    whole boolean not null default false, -- the next pull is of the whole repo
    host text collate "C" not null default '', -- where it was last pulled from
    pull_after timestamptz, -- when it is to be pulled, or a claim ends; null: it needs not be
    pull_token uuid, -- of the pull that is under way
    rests_until timestamptz not null default 'epoch', -- no pull begins before
    attempts integer not null default 0,
    failure text collate "C",
    primary key (repo, space)
);
alter table space_repos alter column set_state set statistics 0;
create index space_repos_by_space on space_repos (space, repo);
create index space_repos_by_time on space_repos (pull_after) where pull_after is not null;

-- What the API was told or did, for the indexer to act on: one row for each author and kind.
create table space_inbox (
    repo text collate "C" not null, -- the authority's DID
    space text collate "C" not null,
    kind text collate "C" not null check (kind in ('opened', 'written', 'deleted')),
    author text collate "C" not null default '', -- of what was written
    rev text collate "C",
    hash bytea,
    received_at timestamptz not null default clock_timestamp(),
    primary key (repo, space, kind, author)
);

-- As deploy/roles.sql does, which may have been run before there were these tables.
do $$
begin
    if to_regrole('memory_appview') is not null then
        grant insert, update, delete on grants, credentials, space_inbox to memory_appview;
    end if;
end
$$;

-- migrate:down
