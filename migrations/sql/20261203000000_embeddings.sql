-- migrate:up

create extension if not exists vector;

-- Models of embeddings. Every memory gets a vector of each; searches go by the one that is serving.
create table embedding_models (
    model text collate "C" primary key,
    dimensions integer not null check (dimensions between 1 and 4000), -- what an index of halfvec can hold
    state text collate "C" not null check (state in ('filling', 'serving', 'standby', 'leaving')),
    added_at timestamptz not null,
    serve_at_share real not null default 1 check (serve_at_share between 0 and 1), -- of memories with a vector, while filling
    -- Looks for memories without a vector that nobody asked for: how often it went through all, and how far it is. Of a
    -- model that is leaving: how far its vectors are deleted.
    walks integer not null default 0,
    walked_repo text collate "C" not null default '',
    walked_space text collate "C" not null default '',
    walked_rkey text collate "C" not null default '',
    -- {"low", "high", "mean"}: likenesses of chance pairs and of right ones, and the mean vector; null: not measured.
    calibration jsonb,
    calibrated_at timestamptz
);
create unique index embedding_models_serving on embedding_models (state) where state = 'serving';

-- Vectors of unit length, one for each passage of a content. Never of a content that is no more: whoever changes a memory
-- deletes them in the same transaction.
create table embeddings (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    model text collate "C" not null,
    rkey text collate "C" not null,
    chunk smallint not null,
    embedding halfvec not null,
    primary key (repo, space, model, rkey, chunk)
) with (toast_tuple_target = 8160); -- in line: a vector beside its row takes two to four times as long to read
alter table embeddings alter column embedding set storage external;
alter table embeddings alter column embedding set statistics 0;

-- Contents that wait for their vectors. Whoever works takes some for a while; what was taken by one that died comes free.
create table embedding_requests (
    repo text collate "C" not null,
    space text collate "C" not null default '',
    model text collate "C" not null,
    rkey text collate "C" not null,
    cid text collate "C" not null, -- of the content that is meant
    -- 0: came live. 1: was there before the model, or came with a whole repo. 2: was taken again and again, or refused.
    lane smallint not null check (lane between 0 and 2),
    not_before timestamptz not null default '-infinity',
    attempts smallint not null default 0, -- times that it was taken, and neither embedded nor given back
    primary key (repo, space, model, rkey)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index embedding_requests_lanes on embedding_requests (model, lane, repo, space, rkey);

-- migrate:down
