-- migrate:up

-- What came of the work on Spaces, for metrics; of all processes that share it.
create table space_tallies (
    work text collate "C" not null,
    outcome text collate "C" not null, -- a word of ours, never one of others
    times bigint not null,
    last_at timestamptz not null,
    primary key (work, outcome)
);

-- migrate:down
