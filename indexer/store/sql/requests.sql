-- name: claim_requests
-- Due requests of a kind, of tracked repos or of strangers; whoever claims one has it to itself for a while.
with due as (
    select r.repo, r.space, r.kind
    from requests r
    where r.kind = :kind and r.not_before <= :now
        and exists (select from repos t where (t.repo, t.space) = (r.repo, r.space)) = :tracked::boolean
    order by r.not_before
    limit :at_most
    for update of r skip locked
)
update requests r set not_before = :claimed_until, attempts = r.attempts + 1
from due
where (r.repo, r.space, r.kind) = (due.repo, due.space, due.kind)
returning r.repo, r.space, r.kind, r.reason, r.attempts, r.requested_at, :tracked::boolean;

-- name: postpone_request
-- It could not be answered now.
update requests set not_before = :not_before where repo = :repo and space = :space and kind = :kind;
