-- migrate:up

-- The repo's host as it was when that was last looked at, '' for unknown: so hosts take turns, and what waits for one
-- that is busy stands in nobody's way.
alter table requests add column host text not null default '' collate "C";
update requests q set host = r.host from repos r where (r.repo, r.space) = (q.repo, q.space) and r.host is not null;
create index requests_by_host on requests (kind, host, not_before) where tracked and space = '';

-- Who listed a repo of which nothing was verified yet; null: it was, or nobody did. So whoever lists what does not exist
-- can have us look for so many and no more.
alter table repos add column listed_by text collate "C";
create index repos_by_list on repos (listed_by) where listed_by is not null;

-- Since when no more of the list is read, for too many repos of it wait to be verified; null: it is.
alter table discoveries add column held_up_at timestamptz;

-- migrate:down
