-- name: sealed_by_other_keys
-- Credentials that another key than the current one seals, from a place on.
select repo, token, space, sealed
from credentials
where (repo, token, space) > (:repo, :token, :space) and key_id <> :key_id
order by repo, token, space
limit :at_most;

-- name: replace_sealed
-- A credential sealed anew, unless it is another one by now.
update credentials set sealed = :resealed, key_id = :key_id
where repo = :repo and token = :token and space = :space and sealed = :sealed;
