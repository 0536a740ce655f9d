-- migrate:up

-- So many invalid records of a repo are kept, those with the smallest rkeys. One stays known as long as it stands; what
-- expires is its excerpt. Behind `quota_edge` nothing is held, and all is counted that is there.
alter table repos
    add column invalid_count integer not null default 0, -- rows in `invalid_records`
    add column invalid_edge text collate "C"; -- from this rkey on, invalid records are kept out; null: none is
with gone as (
    delete from invalid_records i
    using repos r
    where (r.repo, r.space) = (i.repo, i.space) and i.rkey >= r.quota_edge
    returning i.repo, i.space
), counted as (
    select repo, space, count(*) as records from gone group by repo, space
)
update repos r set over_quota_count = r.over_quota_count + c.records
from counted c
where (r.repo, r.space) = (c.repo, c.space);
update repos r set invalid_count = c.records
from (select repo, space, count(*) as records from invalid_records group by repo, space) c
where (r.repo, r.space) = (c.repo, c.space);
-- Invalid records that expired before are known to nobody: a fetch counts what is kept out anew.
insert into requests (repo, space, kind, reason, requested_at, not_before)
select repo, space, 'fetch', 'quota_refill', now(), now() from repos where quota_edge is not null and space = ''
on conflict (repo, space, kind) do nothing;

drop index invalid_records_by_age;
create index invalid_records_by_age on invalid_records (seen_at) where excerpt <> '';

-- migrate:down
