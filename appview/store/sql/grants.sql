-- name: readable_spaces
-- The Spaces that may be read by an access token now: granted to it and to no other, while its viewer's account is active,
-- and held as they were lately, by the database's clock. A Space whose deletion is still to be acted on is gone already.
-- What is asked for is no part of it: the rows that are visited are those of the token, whichever Space is meant.
select g.space
from grants g
join spaces s on s.repo = split_part(g.space, '/', 3) and s.space = g.space
where g.repo = :repo and g.token = :token and g.expires_at > :now
    and s.fresh_until > now() and s.state <> 'deleted'
    and not exists (select from space_inbox i where (i.repo, i.space, i.kind) = (s.repo, s.space, 'deleted'))
    and not exists (select from identities p where p.repo = :repo and p.tombstoned)
    -- By the row of the public repo, if there is one; else by what was heard of the account, as for that row.
    and not exists (select from repos r where r.repo = :repo and r.space = '' and not r.visible)
    and not exists (
        select
        from account_status a
        where a.repo = :repo and not a.active
            and (
                a.source_kind = 'relay'
                or coalesce(a.source = (select p.host from identities p where p.repo = :repo), true)
            )
    );

-- name: grants_of
-- What was granted to an access token and has not expired, and whether all that was listed of it is held: of a Space that is
-- fetched for the first time, or of whose authors one is, a part may be read already.
select
    g.space,
    g.granted_at,
    g.expires_at,
    s.repo is not null and s.fresh_until > now() and s.state = 'ready'
        and not exists (select from space_inbox i where (i.repo, i.space, i.kind) = (s.repo, s.space, 'deleted')) as ready
from grants g
left join spaces s on s.repo = split_part(g.space, '/', 3) and s.space = g.space
where g.repo = :repo and g.token = :token and g.expires_at > :now
order by g.space
limit :at_most;

-- name: is_held
-- Whether all that was listed of a Space is held, and may be read.
select exists (
    select
    from spaces s
    where s.repo = :repo and s.space = :space and s.fresh_until > now() and s.state = 'ready'
        and not exists (select from space_inbox i where (i.repo, i.space, i.kind) = (s.repo, s.space, 'deleted'))
);

-- name: is_authority
-- Whether somebody governs a Space that was opened here.
select exists (select from spaces where repo = :repo);
