-- Two roles, so that what answers strangers can change nothing that it answers with:
--
--   memory_indexer   owns the tables: runs the migrations and the indexer
--   memory_appview   reads all, and writes only what its callers ask for: runs the API
--
-- Run it by psql on the database of the index, as its owner or a superuser, before the migrations or after them, and again
-- whenever `python -m indexer doctor` asks for it; it may be run as often as one likes:
--
--   psql --set=ON_ERROR_STOP=1 --dbname=memory --file=deploy/roles.sql
--
-- It sets no passwords: `\password memory_indexer` in psql does, and keeps them out of logs.

begin;

do $$
begin
    if to_regrole('memory_indexer') is null then
        create role memory_indexer login;
    end if;
    if to_regrole('memory_appview') is null then
        create role memory_appview login;
    end if;
    -- Who is no superuser may give tables only to roles of which it is a member.
    if not (select rolsuper from pg_roles where rolname = current_user) then
        execute format('grant memory_indexer to %I', current_user);
    end if;
end
$$;

-- An error's details can quote a memory. Only a superuser may say so for a role; else the server's configuration must.
do $$
declare
    who text;
begin
    foreach who in array array['memory_indexer', 'memory_appview'] loop
        execute format('alter role %I set log_error_verbosity = terse', who);
        execute format('alter role %I set log_parameter_max_length = 0', who);
        execute format('alter role %I set log_parameter_max_length_on_error = 0', who);
    end loop;
exception
    when insufficient_privilege then
        raise notice 'set log_error_verbosity = terse and log_parameter_max_length = 0 in the configuration of the server';
end
$$;

-- The planner's samples of what was deleted are vacuumed with it. Before Postgres 17 only the owner of the database may.
do $$
begin
    grant maintain on pg_catalog.pg_statistic to memory_indexer;
exception
    when insufficient_privilege or syntax_error then
        raise notice 'pg_statistic is left to autovacuum: docs/erasure.md tells what that means';
end
$$;

-- Vectors are an extension's type, which only a superuser may bring in, or whom the host of the server lets.
do $$
begin
    create extension if not exists vector;
exception
    when insufficient_privilege or feature_not_supported or undefined_file then
        raise notice 'pgvector is missing here: have a superuser run `create extension vector` in this database';
end
$$;

do $$
begin
    execute format('grant connect, create on database %I to memory_indexer', current_database());
    execute format('grant connect on database %I to memory_appview', current_database());
end
$$;
grant usage, create on schema public to memory_indexer;
grant usage on schema public to memory_appview;

-- Tables that migrations made as somebody else.
do $$
declare
    made regclass;
begin
    for made in
        select oid
        from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm')
            and relowner <> 'memory_indexer'::regrole
            and not exists (select from pg_depend where classid = 'pg_class'::regclass and objid = pg_class.oid and deptype = 'e')
    loop
        execute format('alter table %s owner to memory_indexer', made);
    end loop;
end
$$;

-- Future tables are readable from the start.
alter default privileges for role memory_indexer in schema public grant select on tables to memory_appview;
revoke all on all tables in schema public from memory_appview;
grant select on all tables in schema public to memory_appview;

-- Who is who, what callers grant and revoke, and what they ask for: the indexer acts on it. What is not there yet is passed
-- over.
do $$
declare
    written text;
begin
    foreach written in array array['identities', 'grants', 'credentials', 'access_tokens', 'seen_tokens', 'space_inbox'] loop
        if to_regclass('public.' || written) is not null then
            execute format('grant insert, update, delete on public.%I to memory_appview', written);
        end if;
    end loop;
end
$$;

commit;
