-- name: insert_deletions
-- What is gone, in the transaction in which it goes.
insert into deletions (repo, subject_sha256, deleted_at)
select n.repo, n.subject_sha256, max(n.at)
from unnest(:repos::text[], :subjects::bytea[], :times::timestamptz[]) as n (repo, subject_sha256, at)
group by n.repo, n.subject_sha256
order by n.repo, n.subject_sha256 -- also of repos that have no row to lock
on conflict (repo, subject_sha256) do update set deleted_at = greatest(deletions.deleted_at, excluded.deleted_at);

-- name: drop_parked_behind
-- Parked commits that these repos are past: nothing but their content is left of them.
delete from parked_commits p
using unnest(:repos::text[], :revs::text[]) as k (repo, rev)
where p.repo = k.repo and p.rev <= k.rev;

-- name: drop_parked
-- All parked commits of these repos, whose content nobody has looked at.
delete from parked_commits where repo = any(:repos::text[]) returning repo;

-- name: drop_parked_before
-- Parked commits of repos in which something was deleted after they were parked.
delete from parked_commits p
using unnest(:repos::text[], :times::timestamptz[]) as k (repo, at)
where p.repo = k.repo and p.parked_at <= k.at
returning p.repo;

-- name: deletions_since
-- The list of deletions, a page at a time.
select repo, subject_sha256, deleted_at from deletions
where deleted_at >= :since and (deleted_at, repo, subject_sha256) > (:after_at, :after_repo, :after_subject)
order by deleted_at, repo, subject_sha256
limit :at_most;

-- name: denials_since
-- What an operator took down, and did not restore.
select subject_sha256, denied_at from denials where denied_at >= :since order by denied_at, subject_sha256;

-- name: insert_denials_of_old
-- Takedowns that a backup does not know.
insert into denials (subject_sha256, denied_at)
select * from unnest(:subjects::bytea[], :times::timestamptz[])
on conflict (subject_sha256) do nothing;

-- name: delete_access_tokens
-- Access tokens, some of them: which of those in a backup were revoked since, nobody knows.
delete from access_tokens a
using (select repo, id from access_tokens order by repo, id limit :at_most) s
where (a.repo, a.id) = (s.repo, s.id);

-- name: held_though_deleted
-- Records that are held, and were deleted after what is held of them was indexed; an rkey of null is the whole repo.
with deleted as (
    select * from unnest(:repos::text[], :subjects::bytea[], :times::timestamptz[]) as d (repo, subject_sha256, at)
), named as (
    select distinct repo from deleted
), held as (
    select m.repo, m.rkey, m.indexed_at as at from memories m join named using (repo) where m.space = ''
    union all
    select i.repo, i.rkey, i.seen_at from invalid_records i join named using (repo) where i.space = ''
    union all
    select v.repo, v.rkey, v.observed_at
    from memory_versions v join named using (repo)
    where v.space = '' and v.redacted_at is null and v.operation <> 'deleted'
), subjects as (
    select repo, rkey, min(at) as at,
        sha256(convert_to('at://' || repo || '/dev.bastienrobert.memory.record/' || rkey, 'UTF8')) as subject_sha256
    from held
    group by repo, rkey
    union all
    select repo, null, min(at), sha256(convert_to(repo, 'UTF8')) from held group by repo
)
select s.repo, s.rkey, d.at
from subjects s
join deleted d on (d.repo, d.subject_sha256) = (s.repo, s.subject_sha256) and s.at <= d.at
where not exists (select from denials n where n.subject_sha256 = s.subject_sha256)
order by s.repo, s.rkey;
