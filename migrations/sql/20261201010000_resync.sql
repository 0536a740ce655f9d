-- migrate:up

alter table repos
    add column fetch_token uuid, -- of the fetch that is under way; a purge takes it back, and so ends that fetch
    add column fetch_after timestamptz, -- no fetch begins before, so that none repo's fetches take all there is
    add column latest_asked_at timestamptz, -- when a commit that may be a forger's last made us ask its host
    add column audited_at timestamptz, -- when what is held was last compared with what its host has; null: never
    add column hastened_at timestamptz; -- when its fetch last had not to wait any longer for what failed
create index repos_by_audit on repos (coalesce(audited_at, tracked_at)) where space = '';

-- By the database's clock, when it was first asked: a fetch waits until every daemon tracks its repo since then.
alter table requests add column asked_at timestamptz not null default clock_timestamp();
-- Why the last attempt failed; null: none did, or none has ended yet.
alter table requests add column failure text collate "C";
-- Whether it is about a repo that is tracked, or a stranger, of whom anybody can make up as many as they like.
alter table requests add column tracked boolean not null default true;
update requests q set tracked = exists (select from repos r where (r.repo, r.space) = (q.repo, q.space));
drop index requests_by_time;
create index requests_by_time on requests (kind, tracked, not_before);

-- By the database's clock: everything that was tracked before that is known to the daemon that holds the lease.
alter table leases add column tracks_as_of timestamptz not null default '-infinity';

-- Up to which repo those that a gap may concern were asked for; null: none yet.
alter table sources add column gap_compared_to text collate "C";

-- How far each search for repos has come; a sweep that is finished starts anew.
create table discoveries (
    origin text collate "C" primary key, -- a URL, or `operator` for a list of the operator's own
    page_cursor text, -- of the next page; null: the first
    repos_found bigint not null,
    started_at timestamptz not null,
    updated_at timestamptz not null,
    finished_at timestamptz
);

-- migrate:down
