-- name: claim_requests
-- Due requests of a kind, of tracked repos or of strangers; whoever claims one has it to itself for a while. A site (the
-- directory of did:plc, a domain with all names below it) is asked so many things at a time and no more.
with due as (
    select r.repo, r.space, r.kind, r.not_before
    from requests r
    -- Said by rows, so that without statistics too they are taken to be many, and read in the order of their index.
    where (r.kind, r.tracked, r.not_before) >= (:kind::text, :tracked::boolean, '-infinity'::timestamptz)
        and (r.kind, r.tracked, r.not_before) <= (:kind, :tracked, :now::timestamptz)
        -- of sites that are asked enough there may be very many
        and case when r.repo like 'did:plc:%' then not :plc_is_full::boolean else not exists (
            select from unnest(:full_sites::text[]) as f (site)
            where right(lower(r.repo), length(f.site) + 1) in ('.' || f.site, ':' || f.site)
        ) end
    order by r.kind, r.tracked, r.not_before
    limit :looked_at
), sited as (
    select *, case
        when repo like 'did:plc:%' then 'did:plc' else substring(lower(repo) from '[^.:]*[.]?[^.:]*$')
    end as site
    from due
), placed as (
    select s.*, coalesce(b.claims, 0) + row_number() over (partition by s.site order by s.not_before) as place
    from sited s
    left join unnest(:busy_sites::text[], :busy_claims::integer[]) as b (site, claims) on b.site = s.site
), chosen as (
    select r.repo, r.space, r.kind, p.site
    from requests r
    join placed p using (repo, space, kind)
    where p.place <= case p.site when 'did:plc' then :plc_share::integer else :site_share::integer end
        and r.not_before <= :now -- nobody else has claimed it since
    order by p.not_before
    limit :at_most
    for update of r skip locked
)
update requests r set not_before = :claimed_until, attempts = r.attempts + 1
from chosen c
where (r.repo, r.space, r.kind) = (c.repo, c.space, c.kind)
returning r.repo, r.space, r.kind, r.reason, r.attempts, r.requested_at, :tracked::boolean, c.site;

-- name: postpone_request
-- It could not be answered now.
update requests set not_before = :not_before where repo = :repo and space = :space and kind = :kind;

-- name: claim_handles
-- Handles of tracked repos that are to be asked for again, those first that were missed least often; no more than that
-- many wait for it at a time, whoever claimed them. What is claimed is due again later, if its answer is lost. Nobody is
-- shown a stranger's: it is put off for as long as it is old, so that strangers keep no others waiting.
with due as (
    select i.repo, i.handle_misses, i.handle_retry_at,
        exists (select from repos r where (r.repo, r.space) = (i.repo, '')) as tracked
    from identities i
    where i.handle_retry_at <= :now
    order by i.handle_retry_at
    limit :looked_at
    for update of i skip locked
), chosen as (
    select repo from due
    where tracked
    order by handle_misses, handle_retry_at
    limit greatest(0, :at_most::integer - (
        select count(*) from requests r where r.kind = 'identity' and r.tracked and r.reason = :reason
    ))
), put_off as (
    update identities i
    set handle_retry_at = :now + least(greatest(:now - i.resolved_at, :shortest::interval), :longest::interval)
    from due d
    where i.repo = d.repo and not d.tracked
)
update identities i set handle_retry_at = :now + :shortest::interval
from chosen c
where i.repo = c.repo
returning i.repo;

-- name: ask_for_handles
-- Who is asked for anyway is not asked for twice at a time.
insert into requests (repo, kind, reason, requested_at, not_before)
select repo, 'identity', :reason, :now, :now
from unnest(:repos::text[]) as n (repo)
order by repo
on conflict (repo, space, kind) do nothing;
