-- migrate:up

-- A search in a repo begins with how many memories there are, of which length: of thousands, told by an index alone.
create index memories_by_time_next on memories (repo, space, effective_at, rkey)
    include (indexed_at, term_count, masked_from);
drop index memories_by_time;
alter index memories_by_time_next rename to memories_by_time;

-- migrate:down
