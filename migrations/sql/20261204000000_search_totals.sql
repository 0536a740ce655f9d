-- migrate:up

-- A search in a repo begins with how many memories there are, of which length: of thousands, told by an index alone.
create index memories_by_time_next on memories (repo, space, effective_at, rkey)
    include (indexed_at, term_count, masked_from);
drop index memories_by_time;
alter index memories_by_time_next rename to memories_by_time;

-- No text is less than the empty one, so this holds public memories as before. But the planner joins two indexes only if
-- the condition of neither says what the other's does, and others have `space = ''`: what has a word and is of last month,
-- or of a kind, is found by both.
drop index memories_public_terms;
create index memories_public_terms on memories using gin (terms) where space <= '';

-- migrate:down
