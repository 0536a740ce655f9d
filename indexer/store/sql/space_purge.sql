-- name: mark_deleted
-- From now on nothing of a Space is served, and what was granted or held until then goes.
update spaces set
    state = 'deleted', fresh_until = 'epoch', deleted_at = least(coalesce(deleted_at, :deleted_at), :deleted_at)
where repo = :repo and space = :space and claim_token = :token
returning deleted_at;

-- name: drop_grants
-- Grants of a Space that is no more, some of them; what was granted since is for another one of the same name.
delete from grants g
using (
    select repo, token from grants
    where space = :space and granted_at <= :before
    order by repo, token
    limit :at_most
) n
where g.repo = n.repo and g.token = n.token and g.space = :space;

-- name: drop_credentials
-- Credentials without a grant, some of them.
delete from credentials k
using (
    select c.repo, c.token from credentials c
    where c.space = :space
        and not exists (select from grants g where (g.repo, g.token, g.space) = (c.repo, c.token, c.space))
    order by c.repo, c.token
    limit :at_most
) n
where k.repo = n.repo and k.token = n.token and k.space = :space;

-- name: drop_names
-- Authors of whom nothing was ever pulled, some of them: a listing of ever so many names goes in a few statements.
delete from space_repos p
using (
    select q.repo from space_repos q
    where q.space = :space and q.rev is null and q.pull_token is null
        and not exists (select from repos r where (r.repo, r.space) = (q.repo, q.space))
        and exists (
            select from spaces
            where repo = :repo and space = :space and claim_token = :token and deleted_at is not null
        )
    order by q.repo
    limit :at_most
    for update skip locked
) n
where p.repo = n.repo and p.space = :space;

-- name: next_in_space
-- An author of whom something of the Space is left, for whoever has it still: who lost it would delete what is of another
-- one of the same name.
select n.repo
from (
    (select repo from space_repos where space = :space limit 1)
    union all
    (select repo from repos where space = :space limit 1)
) n
where exists (
    select from spaces
    where repo = :repo and space = :space and claim_token = :token and deleted_at is not null
)
limit 1;

-- name: delete_space_repo
-- That an author wrote there; a pull that is under way ends with it.
delete from space_repos where repo = :repo and space = :space;

-- name: delete_repo
-- The row that readers used.
delete from repos where repo = :repo and space = :space;

-- name: delete_requests_of
-- What was to be asked.
delete from requests where repo = :repo and space = :space;

-- name: delete_inbox
-- What was said of the Space until then.
delete from space_inbox where repo = :repo and space = :space and received_at <= :before;

-- name: leave_space
-- A walk through all memories that stands in the Space goes on from the beginning of that author.
update embedding_models set walked_space = '', walked_rkey = '' where walked_space = :space;

-- name: delete_space
-- The last of it, for whoever has it still: who lost it cannot tell whether all else is gone.
delete from spaces s
where s.repo = :repo and s.space = :space and s.claim_token = :token and s.deleted_at is not null
    and not exists (select from space_repos p where p.space = s.space)
    and not exists (select from repos r where r.space = s.space)
returning s.repo;

-- name: expire_grants
-- Grants that hold no more, some of them.
delete from grants g
using (
    select repo, token, space from grants
    where expires_at < coalesce(:now::timestamptz, clock_timestamp())
    order by expires_at
    limit :at_most
    for update skip locked
) n
where (g.repo, g.token, g.space) = (n.repo, n.token, n.space);

-- name: expire_credentials
-- Credentials that hold no more, some of them, once their Space knows until when they did.
delete from credentials k
using (
    select c.repo, c.token, c.space from credentials c
    where c.expires_at < coalesce(:now::timestamptz, clock_timestamp())
        and not exists (select from spaces s where s.space = c.space and s.credentialed_until < c.expires_at)
    order by c.expires_at
    limit :at_most
    for update skip locked
) n
where (k.repo, k.token, k.space) = (n.repo, n.token, n.space);

-- name: expire_notes
-- What was said of Spaces that nobody opened.
delete from space_inbox i
using (
    select i.repo, i.space, i.kind, i.author from space_inbox i
    where i.received_at < coalesce(:now::timestamptz, clock_timestamp()) - :kept::interval
        and not exists (select from spaces s where (s.repo, s.space) = (i.repo, i.space))
    limit :at_most
    for update skip locked
) n
where (i.repo, i.space, i.kind, i.author) = (n.repo, n.space, n.kind, n.author);

-- name: forget_samples
-- Of each table that may name Spaces, that is empty, and of which the planner has samples of what was there: has it sample
-- one row, which says nothing and which nobody sees. Analysing an empty table leaves samples as they are.
do $$
declare
    emptied record;
    is_empty boolean;
    filled jsonb;
begin
    for emptied in
        select t.name, t.given
        from (
            values
                ('grants', '{}'::jsonb), ('credentials', '{}'), ('spaces', '{"state": "syncing"}'), ('space_repos', '{}'),
                ('space_inbox', '{"kind": "opened"}'), ('repos', '{"state": "pending"}'), ('requests', '{"kind": "fetch"}'),
                ('memories', '{}'), ('memory_edges', '{}'), ('memory_versions', '{"operation": "created"}'),
                ('invalid_records', '{}'), ('embeddings', '{}'), ('embedding_requests', '{}')
        ) as t (name, given)
        where exists (
            select
            from pg_stats s
            where s.schemaname = 'public' and s.tablename = t.name
                and coalesce(s.most_common_vals::text, s.histogram_bounds::text, s.most_common_elems::text) is not null
        )
    loop
        execute format('select not exists (select from %I)', emptied.name) into is_empty;
        continue when not is_empty;
        -- every column that must not be null
        select emptied.given || jsonb_object_agg(a.attname, case
            when a.atttypid in ('text'::regtype, 'bytea'::regtype, 'tsvector'::regtype) then ''
            when a.atttypid = 'timestamptz'::regtype then 'epoch'
            when a.atttypid = 'boolean'::regtype then 'false'
            when a.atttypid in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype) then '0'
            else '[0]'
        end)
        into filled
        from pg_attribute a
        where a.attrelid = emptied.name::regclass and a.attnum > 0 and a.attnotnull and not emptied.given ? a.attname;
        execute format('insert into %1$I select (jsonb_populate_record(null::%1$I, %2$L)).*', emptied.name, filled);
        execute format('analyze %I', emptied.name);
        execute format('delete from %I where xmin = pg_current_xact_id()::xid', emptied.name);
    end loop;
end
$$;
