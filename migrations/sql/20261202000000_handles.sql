-- migrate:up

-- When a handle is asked for again whose own side could not be asked; null: it is settled. And how often that was missed
-- on end.
alter table identities
    add column handle_retry_at timestamptz,
    add column handle_misses smallint not null default 0;
create index identities_by_handle_retry on identities (handle_retry_at) where handle_retry_at is not null;
-- Which of the handles that are missing could not be asked for was not kept until now: each is asked for once more.
update identities set handle_retry_at = now() + random() * interval '1 day' where handle is null and not tombstoned;

-- migrate:down
