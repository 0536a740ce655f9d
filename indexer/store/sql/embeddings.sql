-- name: any_model
-- Whether anything is embedded at all.
select exists (select from embedding_models);

-- name: request_embeddings
-- New contents wait for a vector of each model; what was asked for their keys before is replaced.
insert into embedding_requests (repo, space, model, rkey, cid, lane)
select k.repo, k.space, e.model, k.rkey, k.cid, :lane
from unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
cross join embedding_models e
where e.state <> 'leaving'
order by k.repo, k.space, e.model, k.rkey
on conflict (repo, space, model, rkey) do update set
    cid = excluded.cid, lane = excluded.lane, not_before = '-infinity', attempts = 0;

-- name: forget_embeddings
-- Vectors of contents that are no more, and what waits for some.
with forgotten as (
    delete from embeddings e
    using unnest(:repos::text[], :spaces::text[], :rkeys::text[]) as k (repo, space, rkey), embedding_models m
    where (e.repo, e.space, e.model, e.rkey) = (k.repo, k.space, m.model, k.rkey)
)
delete from embedding_requests r
using unnest(:repos, :spaces, :rkeys) as k (repo, space, rkey), embedding_models m
where (r.repo, r.space, r.model, r.rkey) = (k.repo, k.space, m.model, k.rkey);

-- name: models
-- All models, the serving one first.
select model, dimensions, state, added_at, serve_at_share, walks, calibration, calibrated_at
from embedding_models
order by state <> 'serving', added_at, model;

-- name: add_model
-- A model that is new, or was to be given up. The first one serves from the start: without it there would be none.
insert into embedding_models as m (model, dimensions, state, added_at, serve_at_share)
select
    :model::text, :dimensions,
    case when exists (select from embedding_models where state <> 'leaving') then 'filling' else 'serving' end,
    clock_timestamp(), :serve_at_share
on conflict (model) do update set
    state = case when m.state = 'serving' then 'serving' else 'filling' end,
    walks = case when m.state = 'leaving' then 0 else m.walks end,
    walked_repo = case when m.state = 'leaving' then '' else m.walked_repo end,
    walked_space = case when m.state = 'leaving' then '' else m.walked_space end,
    walked_rkey = case when m.state = 'leaving' then '' else m.walked_rkey end,
    serve_at_share = excluded.serve_at_share
where m.dimensions = excluded.dimensions
returning state;

-- name: lock_models
-- Nobody else changes which model serves.
select model, state from embedding_models order by model for no key update;

-- name: stand_by
-- The model that served is kept filled, so that one can go back to it.
update embedding_models set state = 'standby' where state = 'serving' and model <> :model;

-- name: serve_model
-- Searches go by this model from now on.
update embedding_models set state = 'serving' where model = :model and state <> 'leaving';

-- name: leave_model
-- Nothing more is embedded by this model, unless it serves; what there is of it is deleted.
update embedding_models set state = 'leaving', walked_repo = '', walked_space = '', walked_rkey = ''
where model = :model and state in ('filling', 'standby');

-- name: leaving_position
-- How far a model's vectors are deleted; the row stays locked, so that one worker deletes at a time.
select walked_repo, walked_space
from embedding_models
where model = :model and state = 'leaving'
for no key update skip locked;

-- name: lock_leaving
-- The same once none is left: whoever stores vectors has done so, or finds that they are not wanted.
select walked_repo, walked_space
from embedding_models
where model = :model and state = 'leaving'
for update;

-- name: drop_some_embeddings
-- So many vectors of a model that is leaving, and how far that came. What somebody else deletes is not waited for.
with slice as materialized (
    select e.repo, e.space, e.rkey, e.chunk
    from embeddings e
    where (e.repo, e.space) >= (:repo::text, :space::text) and e.model = :model::text
    order by e.repo, e.space, e.model, e.rkey, e.chunk
    limit :count
    for update skip locked
),
dropped as (
    delete from embeddings e
    using slice s
    where (e.repo, e.space, e.model, e.rkey, e.chunk) = (s.repo, s.space, :model, s.rkey, s.chunk)
)
select repo, space, (select count(*) from slice) as dropped
from slice
order by repo desc, space desc
limit 1;

-- name: drop_some_requests
-- So many requests of a model that is leaving.
delete from embedding_requests
where ctid = any(array(
    select ctid from embedding_requests where model = :model limit :count for update skip locked
));

-- name: delete_model
-- A model of which nothing is left.
delete from embedding_models m
where m.model = :model and not exists (select from embeddings e where e.model = m.model) and not exists (
    select from pg_class c
    where c.relnamespace = 'public'::regnamespace
        and c.relname = 'embeddings_nearest_' || encode(substring(sha256(m.model::bytea) for 6), 'hex')
);

-- name: drop_stray_requests
-- What was asked for while a model was deleted.
delete from embedding_requests r where not exists (select from embedding_models m where m.model = r.model);

-- name: index_statements
-- The index of a model's public vectors, as statements, for searches over all authors; and whether it is whole; null: there
-- is none.
select format(
    'create index concurrently if not exists %I on embeddings using hnsw ((embedding::halfvec(%s)) halfvec_cosine_ops) '
    'with (m = 16, ef_construction = 128) where space = '''' and model = %L',
    'embeddings_nearest_' || encode(substring(sha256(model::bytea) for 6), 'hex'), dimensions, model
) as create_index,
'embeddings_nearest_' || encode(substring(sha256(model::bytea) for 6), 'hex') as name,
(
    select i.indisvalid
    from pg_class c
    join pg_index i on i.indexrelid = c.oid
    where c.relnamespace = 'public'::regnamespace
        and c.relname = 'embeddings_nearest_' || encode(substring(sha256(model::bytea) for 6), 'hex')
) as valid,
format('drop index concurrently if exists %I', 'embeddings_nearest_' || encode(substring(sha256(model::bytea) for 6), 'hex'))
    as drop_index
from (values (:model::text, :dimensions::integer)) as m (model, dimensions);

-- name: try_lock_indexes
-- One process builds indexes at a time; the lock is the session's.
select pg_try_advisory_lock(hashtextextended('memory embedding indexes', 0));

-- name: unlock_indexes
-- Lets others.
select pg_advisory_unlock(hashtextextended('memory embedding indexes', 0));

-- name: claim
-- Takes requests of one lane: of each of some repos the newest, going round from the repo after `:after_repo` on.
with recursive waiting as (
    (
        select r.repo, r.space
        from embedding_requests r
        where r.model = :model::text and r.lane = :lane::smallint
            and (r.repo, r.space) > (:after_repo::text, :after_space::text)
            and r.not_before <= clock_timestamp() and (r.space = '' or :with_spaces)
        order by r.repo, r.space
        limit 1
    )
    union all
    select n.repo, n.space
    from waiting w
    cross join lateral (
        select r.repo, r.space
        from embedding_requests r
        where r.model = :model and r.lane = :lane and (r.repo, r.space) > (w.repo, w.space)
            and r.not_before <= clock_timestamp() and (r.space = '' or :with_spaces)
        order by r.repo, r.space
        limit 1
    ) n
),
picked as materialized (
    select n.repo, n.space, n.rkey
    from (select repo, space from waiting limit :count) w
    cross join lateral (
        select r.repo, r.space, r.rkey
        from embedding_requests r
        where r.model = :model and r.lane = :lane and r.repo = w.repo and r.space = w.space
            and r.not_before <= clock_timestamp()
        order by r.rkey desc
        limit :each
        for update skip locked
    ) n
    limit :count
)
-- Whoever dies with it in hand makes it doubtful: it is taken by itself then, and each time later.
update embedding_requests r set
    not_before = clock_timestamp()
        + make_interval(secs => :lease_s::float8 * least(power(2, greatest(r.attempts - 2, 0)), 720)),
    attempts = least(r.attempts + 1, 1000),
    lane = case when r.attempts >= 2 then 2 else r.lane end
from picked p
where (r.repo, r.space, r.model, r.rkey) = (p.repo, p.space, :model, p.rkey)
returning r.repo, r.space, r.rkey, r.cid, r.attempts;

-- name: claimed_contents
-- The contents that claimed requests mean; none where the memory is another by now, or gone.
select m.repo, m.space, m.rkey, m.content
from unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
join memories m on (m.repo, m.space, m.rkey) = (k.repo, k.space, k.rkey) and m.cid = k.cid;

-- name: store_embeddings
-- Vectors of contents that are still those; who is about to change one is not waited for, nor are its vectors stored. None
-- of a model that is leaving.
with kept as materialized (
    select model from embedding_models where model = :model::text and state <> 'leaving' for key share
),
held as materialized (
    select m.repo, m.space, m.rkey
    from memories m
    join unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
        on (m.repo, m.space, m.rkey) = (k.repo, k.space, k.rkey) and m.cid = k.cid
    where exists (select from kept)
    for share of m skip locked
),
done as (
    delete from embedding_requests r
    using held h, unnest(:repos, :spaces, :rkeys, :cids) as k (repo, space, rkey, cid)
    where (r.repo, r.space, r.model, r.rkey) = (h.repo, h.space, :model, h.rkey)
        and (k.repo, k.space, k.rkey) = (h.repo, h.space, h.rkey) and r.cid = k.cid
),
stored as (
    insert into embeddings (repo, space, model, rkey, chunk, embedding)
    select h.repo, h.space, :model, h.rkey, v.chunk, v.embedding::halfvec
    from unnest(
        :vector_repos::text[], :vector_spaces::text[], :vector_rkeys::text[], :chunks::smallint[], :vectors::text[]
    ) as v (repo, space, rkey, chunk, embedding)
    join held h on (h.repo, h.space, h.rkey) = (v.repo, v.space, v.rkey)
    on conflict (repo, space, model, rkey, chunk) do update set embedding = excluded.embedding
)
select repo, space, rkey from held;

-- name: drop_requests
-- Requests for contents that are others by now, or gone; not those that were made anew since. Who is about to change one
-- is not waited for.
with stale as materialized (
    select r.repo, r.space, r.rkey
    from embedding_requests r
    join unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
        on (r.repo, r.space, r.model, r.rkey, r.cid) = (k.repo, k.space, :model::text, k.rkey, k.cid)
    where r.attempts > 0 and not exists (
        select from memories m where (m.repo, m.space, m.rkey) = (k.repo, k.space, k.rkey) and m.cid = k.cid
    )
    for update of r skip locked
)
delete from embedding_requests r
using stale s
where (r.repo, r.space, r.model, r.rkey) = (s.repo, s.space, :model, s.rkey);

-- name: give_back
-- Lets these be taken again at once. Who is about to change one is not waited for.
with claimed as materialized (
    select r.repo, r.space, r.rkey
    from embedding_requests r
    join unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
        on (r.repo, r.space, r.model, r.rkey, r.cid) = (k.repo, k.space, :model::text, k.rkey, k.cid)
    for update of r skip locked
)
update embedding_requests r set
    not_before = '-infinity', attempts = greatest(r.attempts - 1, 0), lane = greatest(r.lane, :lane::smallint)
from claimed c
where (r.repo, r.space, r.model, r.rkey) = (c.repo, c.space, :model, c.rkey);

-- name: postpone_requests
-- Keeps these from being taken for a while. Who is about to change one is not waited for.
with claimed as materialized (
    select r.repo, r.space, r.rkey
    from embedding_requests r
    join unnest(:repos::text[], :spaces::text[], :rkeys::text[], :cids::text[]) as k (repo, space, rkey, cid)
        on (r.repo, r.space, r.model, r.rkey, r.cid) = (k.repo, k.space, :model::text, k.rkey, k.cid)
    for update of r skip locked
)
update embedding_requests r set
    not_before = greatest(r.not_before, clock_timestamp() + make_interval(secs => :wait_s::float8)),
    lane = case when :doubtful then 2 else r.lane end
from claimed c
where (r.repo, r.space, r.model, r.rkey) = (c.repo, c.space, :model, c.rkey);

-- name: walk
-- The next memories of a walk, and asks for the vectors that are neither there nor asked for. Who is about to change a
-- memory is not waited for, and asks by itself.
with walked as materialized (
    select m.repo, m.space, m.rkey
    from memories m
    where (m.repo, m.space, m.rkey) > (:repo::text, :space::text, :rkey::text)
    order by m.repo, m.space, m.rkey
    limit :count
),
lacking as materialized (
    select m.repo, m.space, m.rkey, m.cid
    from walked w
    join memories m on (m.repo, m.space, m.rkey) = (w.repo, w.space, w.rkey)
    where not exists (
        select from embeddings e where (e.repo, e.space, e.model, e.rkey) = (w.repo, w.space, :model::text, w.rkey)
    ) and not exists (
        select from embedding_requests r
        where (r.repo, r.space, r.model, r.rkey) = (w.repo, w.space, :model, w.rkey) and r.cid = m.cid
    )
    for share of m skip locked
),
asked as (
    insert into embedding_requests as r (repo, space, model, rkey, cid, lane)
    select l.repo, l.space, :model, l.rkey, l.cid, 1
    from lacking l
    order by l.repo, l.space, l.rkey
    on conflict (repo, space, model, rkey) do update set
        cid = excluded.cid, lane = excluded.lane, not_before = '-infinity', attempts = 0
    where r.cid <> excluded.cid
    returning 1
)
select w.repo, w.space, w.rkey, (select count(*) from walked) as walked, (select count(*) from asked) as asked
from walked w
order by w.repo desc, w.space desc, w.rkey desc
limit 1;

-- name: walk_position
-- How far the walk of a model is; the row stays locked, so that one worker walks at a time.
select walked_repo, walked_space, walked_rkey, walks
from embedding_models
where model = :model and state <> 'leaving'
for no key update skip locked;

-- name: move_walk
-- How far the walk of a model is by now.
update embedding_models set walked_repo = :repo, walked_space = :space, walked_rkey = :rkey, walks = walks + :walks
where model = :model;

-- name: store_calibration
-- What was measured of a model.
update embedding_models set calibration = :calibration::jsonb, calibrated_at = clock_timestamp() where model = :model;

-- name: coverage
-- Of each model: how many requests wait, those among them that were there before it, in public and in Spaces, and those
-- that failed again and again.
select m.model, m.dimensions, m.state, m.walks, m.calibrated_at is not null as calibrated, w.*
from embedding_models m
cross join lateral (
    select count(*) as waiting,
        count(*) filter (where r.lane = 1 and r.space = '') as backlog,
        count(*) filter (where r.lane = 1 and r.space <> '') as backlog_of_spaces,
        count(*) filter (where r.lane = 2) as failing
    from embedding_requests r
    where r.model = m.model
) w
order by m.state <> 'serving', m.added_at, m.model;

-- name: count_embedded
-- How many memories there are, and how many of them have a vector of a model.
select
    (select count(*) from memories) as memories,
    (select count(*) from embeddings where model = :model and chunk = 0) as embedded;
