-- The semantic arm: what is nearest to a query by the meaning of its passages. A memory is as near as its nearest passage.
-- `:query` is a vector of the serving `:model`, as text. `recheck` and `:watermark` are those of the lexical arm.

-- name: serving_model
-- The model that searches go by, and what was measured of it.
select model, dimensions, calibration from embedding_models where state = 'serving';

-- name: named_model
-- A model that is kept, whether it serves or not, and what was measured of it.
select model, dimensions, calibration from embedding_models where model = :model;

-- name: mean_of
-- The mean of vectors in these repos, of as many as a sample needs: what their texts have in common tells none of them from
-- the others. Null where there is none.
select avg(v.embedding)::text as mean
from (
    select e.embedding
    from repos r
    cross join lateral (
        select e.rkey, e.embedding
        from embeddings e
        where e.repo = r.repo and e.space = r.space and e.model = :model::text and e.chunk = 0
            -- Said once more of a single author: so the planner knows how many they have, and reads no more than it takes.
            and (cardinality(:repos::text[]) <> 1 or e.repo = (:repos)[1])
        order by e.repo, e.space, e.model, e.rkey
        limit :sample
    ) e
    where r.visible and r.repo = any(:repos) and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
    order by r.repo, r.space, e.rkey -- to the last: else the plan decides which are the sample, and it knows of all rows
    limit :sample
) v;

-- name: nearest_of
-- The nearest passages among what some authors have in `:spaces`, and if `:public`, in public: all are compared. Without
-- filters, only the memories of the nearest are looked at.
with compared as materialized (
    select e.repo, e.space, e.rkey, e.chunk, (e.embedding <=> :query::text::halfvec) + 0 as distance -- `+ 0`: by no index
    from repos r
    join embeddings e on e.repo = r.repo and e.space = r.space and e.model = :model::text
    where r.visible and r.repo = any(:repos::text[])
        and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
    order by distance, e.repo, e.space, e.rkey, e.chunk
    limit case
        when num_nonnulls(
            :as_of::timestamptz, :watermark::timestamptz, :required::tsquery, :excluded::tsquery, :kinds::text[],
            :scopes::text[], :agents::text[], :clients::text[], :created_after::timestamptz,
            :created_before::timestamptz, :occurred_after::timestamptz, :occurred_before::timestamptz
        ) = 0 then :max_candidates::int
    end
)
select
    m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.content_bytes, m.distance,
    m.masked, hashtextextended(m.content, 0) as content_hash, coalesce(m.terms @@ :recheck::tsquery, false) as needs_recheck
from (
    select
        m.repo, m.space, m.rkey, m.terms, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes, n.chunk,
        n.distance,
        case
            when :include_superseded::bool then false
            when :as_of::timestamptz is null then m.masked_from is not null
            when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
            else m.masked_spans @> :as_of
        end as masked
    from compared n
    join memories m on m.repo = n.repo and m.space = n.space and m.rkey = n.rkey
    where (:as_of is null or m.effective_at <= :as_of)
        and (:watermark::timestamptz is null or m.indexed_at <= :watermark)
        and (:required::tsquery is null or m.terms @@ :required)
        and (:excluded::tsquery is null or not m.terms @@ :excluded)
        and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
    order by n.distance, n.repo, n.space, n.rkey, n.chunk
    limit :max_candidates
) m
order by m.distance, m.repo, m.space, m.rkey, m.chunk;

-- name: distances_by_key
-- How near some memories are that the lexical arm found, of those that have a vector.
select
    e.repo, e.space, e.rkey,
    min(e.embedding <=> (select :query::text::halfvec)) as distance -- read once, whatever the values are planned for
from unnest((select :repos::text[]), (select :spaces_of::text[]), (select :rkeys::text[])) as k (repo, space, rkey)
cross join lateral (
    select * from embeddings e
    where e.repo = k.repo and e.space = k.space and e.model = :model::text and e.rkey = k.rkey
    offset 0 -- so that each memory is gone to by its key
) e
join repos r on r.repo = e.repo and r.space = e.space and r.visible
where e.space = '' or e.space = any(:spaces::text[])
group by e.repo, e.space, e.rkey;

-- name: scan_far
-- How the index over all authors is gone through, until the end of the transaction: on and on, in the order of distance,
-- until enough passes the filters. Nothing else gives that order.
select
    set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', :ef_search::text, true),
    set_config('hnsw.max_scan_tuples', :max_scanned::text, true), set_config('enable_sort', 'off', true);

-- name: read_scattered
-- How memories are read that lie apart, until the end of the transaction: of what the system has in memory each page is
-- read at once, and places of as many as an index finds are kept.
select set_config('effective_io_concurrency', '0', true), set_config('work_mem', '16MB', true);

-- name: count_public
-- How many public memories there are, up to `:max_counted`.
select count(*)
from (
    select
    from repos r
    cross join lateral (
        select from memories m where m.repo = r.repo and m.space = r.space
        offset 0 -- so that no more repos are gone to than it takes
    ) m
    where r.space = '' and r.visible and r.memory_count > 0
    limit :max_counted::int
) m;

-- name: nearest_among_few
-- The nearest public memories of all authors that pass the filters, if they are not more than `:max_compared`: all of them
-- are compared. `matches` stands in every row, at least one, and counts up to one more than that. `:labelled` asks once more
-- for kinds, scopes, agents and clients, as one index has their beginnings. No author takes more than `:of_one_author`
-- places with what is in effect, nor with what is replaced; what is as near as another of the same author is taken for the same text.
with matched as materialized (
    select
        m.repo, m.space, m.rkey,
        case
            when :include_superseded::bool then false
            when :as_of::timestamptz is null then m.masked_from is not null
            when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
            else m.masked_spans @> :as_of
        end as masked
    from memories m
    join repos r on r.repo = m.repo and r.space = m.space and r.visible
    where m.space = ''
        and (
            :labelled::tsquery is null
            or array_to_tsvector(array[
                'k' || left(coalesce(m.kind, ''), 100), 's' || left(coalesce(m.scope, ''), 100),
                'a' || left(coalesce(m.agent, ''), 100), 'c' || left(coalesce(m.client, ''), 100)
            ]) @@ :labelled
        )
        and (:as_of::timestamptz is null or m.effective_at <= :as_of)
        and (:watermark::timestamptz is null or m.indexed_at <= :watermark)
        and (:required::tsquery is null or m.terms @@ :required)
        and (:excluded::tsquery is null or not m.terms @@ :excluded)
        and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
    limit :max_compared::int + 1
),
counted as materialized (
    select count(*) as matches from matched
),
compared as materialized (
    select
        k.repo, k.space, k.rkey, k.masked, e.distance,
        dense_rank() over (partition by k.repo, k.masked order by e.distance) as place,
        row_number() over (partition by k.repo, k.masked, e.distance order by k.rkey) as duplicate
    from matched k
    cross join lateral (
        select min(e.embedding <=> :query::text::halfvec) + 0 as distance -- `+ 0`: by no index
        from embeddings e
        where e.repo = k.repo and e.space = k.space and e.model = :model::text and e.rkey = k.rkey
    ) e
    where e.distance is not null and (select matches from counted) <= :max_compared
),
nearest as materialized (
    select k.repo, k.space, k.rkey, k.masked, k.distance
    from compared k
    where k.place <= :of_one_author::int and k.duplicate <= :copies::int
    order by k.distance, k.repo, k.rkey
    limit :max_candidates::int
)
select
    c.matches, m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.content_bytes, n.distance,
    n.masked, hashtextextended(m.content, 0) as content_hash, coalesce(m.terms @@ :recheck::tsquery, false) as needs_recheck
from counted c
left join nearest n on true
left join memories m on m.repo = n.repo and m.space = n.space and m.rkey = n.rkey
order by n.distance, n.repo, n.rkey;

-- name: nearest_by_index
-- The nearest passages of public memories of all authors that pass the filters, by the model's index: nearly all of them,
-- nearly always. The width of the vectors, 384, is written anew for models of other widths.
select
    m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.content_bytes,
    e.embedding::halfvec(384) <=> :query::text::halfvec(384) as distance,
    m.masked, hashtextextended(m.content, 0) as content_hash, coalesce(m.terms @@ :recheck::tsquery, false) as needs_recheck
from embeddings e
cross join lateral (
    select
        m.repo, m.space, m.rkey, m.terms, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes,
        case
            when :include_superseded::bool then false
            when :as_of::timestamptz is null then m.masked_from is not null
            when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
            else m.masked_spans @> :as_of
        end as masked
    from memories m
    where m.repo = e.repo and m.space = e.space and m.rkey = e.rkey
        and (:as_of::timestamptz is null or m.effective_at <= :as_of)
        and (:watermark::timestamptz is null or m.indexed_at <= :watermark)
        and (:required::tsquery is null or m.terms @@ :required)
        and (:excluded::tsquery is null or not m.terms @@ :excluded)
        and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
    offset 0 -- so that each memory is gone to by its key, one after the other
) m
cross join lateral (
    select r.space from repos r where r.repo = e.repo and r.space = e.space and r.visible
    offset 0
) r
where e.space = '' and r.space = e.space and e.model = :model::text
order by e.embedding::halfvec(384) <=> :query::text::halfvec(384)
limit :max_candidates::int;
