-- name: server_facts
-- What kind of server this is, and as whom we are here.
select
    current_setting('server_version_num')::int as version_number,
    split_part(current_setting('server_version'), ' ', 1) as version,
    pg_encoding_to_char(d.encoding) as encoding,
    current_user::text as role,
    r.rolsuper as superuser
from pg_database d, pg_roles r
where d.datname = current_database() and r.rolname = current_user;

-- name: server_time
-- The server's clock.
select clock_timestamp();

-- name: server_settings
-- Settings of the server as they hold for us; those that it does not have are left out.
select name, setting from pg_settings where name = any(:names::text[]);

-- name: table_rights
-- What we may do with each table, and what the API's role may (null: there is no such role).
select
    c.relname as "table",
    has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
        and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete') as ours,
    has_table_privilege(api.oid, c.oid, 'select') as api_reads,
    has_table_privilege(api.oid, c.oid, 'insert, update, delete, truncate') as api_changes, -- any of them
    has_table_privilege(api.oid, c.oid, 'insert') and has_table_privilege(api.oid, c.oid, 'update')
        and has_table_privilege(api.oid, c.oid, 'delete') as api_writes -- all of them
from pg_class c
left join pg_roles api on api.rolname = :api_role::text
where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
order by c.relname;
