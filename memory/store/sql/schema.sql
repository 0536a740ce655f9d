-- name: applied_migrations
-- The migrations that dbmate has applied: the digits at the start of each file's name.
select version from schema_migrations;
