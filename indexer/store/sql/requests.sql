-- name: claim_requests
-- Due requests of a kind, those of tracked repos first; whoever claims one has it to itself for a while.
with due as (
    select r.repo, r.space, r.kind
    from requests r
    left join repos t using (repo, space)
    where r.kind = :kind and r.not_before <= :now
    order by t.repo is null, r.not_before
    limit :at_most
    for update of r skip locked
)
update requests r set not_before = :claimed_until, attempts = r.attempts + 1
from due
where (r.repo, r.space, r.kind) = (due.repo, due.space, due.kind)
returning r.repo, r.space, r.kind, r.reason, r.attempts, r.requested_at;

-- name: postpone_request
-- It could not be answered now.
update requests set not_before = :not_before where repo = :repo and space = :space and kind = :kind;
