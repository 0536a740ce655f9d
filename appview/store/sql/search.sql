-- Lexical search. `:any`, `:required`, `:excluded` and `:recheck` are tsqueries (null for none), `:lexemes` and
-- `:prefixes` (the same as patterns: `:prefix_patterns`) what is counted in each memory for its score. A memory's `times` are
-- how often it has its `lexemes`, of which one, a prefix and U+10FFFF, stands for all others that begin so: however many
-- words a memory has, little is returned of it.
-- `:watermark` is null for a first page; later pages leave out what was indexed after it.

-- name: search_of
-- Candidates among what some authors have in `:spaces`, and if `:public`, in public. First of all one row of statistics:
-- `repo` is null, `documents` and `mean_length` tell of the corpus, `indexed_at` is its latest, `times` in how many of its
-- memories each of the `lexemes` is. The corpus is all of that which is in effect (with the replaced ones, if those are
-- wanted): other filters do not make a word rare.
with readable as not materialized (
    select
        m.repo, m.space, m.rkey, m.terms, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes,
        case
            when :include_superseded::bool then false
            when :as_of::timestamptz is null then m.masked_from is not null
            when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
            else m.masked_spans @> :as_of
        end as masked,
        (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before) as passes
    from repos r
    join memories m on m.repo = r.repo and m.space = r.space
    where r.visible and r.repo = any(:repos::text[])
        and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
        -- The same once more: so it is known how many the one has, and the index of public terms can be taken.
        and (cardinality(:repos) <> 1 or r.repo = (:repos)[1]) and (:spaces <> '{}' or m.space <= '')
        and (:as_of is null or m.effective_at <= :as_of)
        and (:watermark::timestamptz is null or m.indexed_at <= :watermark)
),
totals as (
    select
        count(*) filter (where not m.masked) as documents,
        coalesce(avg(m.term_count) filter (where not m.masked), 0)::float8 as mean_length,
        max(m.indexed_at) as indexed_at
    from readable m
),
matched as materialized (
    select
        m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.masked, found.lexemes, found.times,
        case when m.passes and (:required::tsquery is null or m.terms @@ :required)
            and (:excluded::tsquery is null or not m.terms @@ :excluded)
            then hashtextextended(m.content, 0) end as content_hash,
        m.content_bytes, coalesce(m.terms @@ :recheck::tsquery, false) as needs_recheck
    from readable m
    cross join lateral (
        select array_agg(f.lexeme) as lexemes, array_agg(f.times) as times
        from (
            select
                case
                    when u.lexeme = any(:lexemes) then u.lexeme
                    when cardinality(:prefixes::text[]) = 1 then (:prefixes)[1] || chr(1114111) -- nearly always
                    else (
                        select max(p.prefix) || chr(1114111)
                        from unnest(:prefixes) as p (prefix)
                        where starts_with(u.lexeme, p.prefix)
                    )
                end as lexeme,
                sum(cardinality(u.positions))::int as times
            from unnest(
                case
                    when :prefix_patterns::text[] <> '{}' then m.terms
                    else ts_filter(setweight(m.terms, 'A', :lexemes::text[]), '{a}') -- much less to take apart
                end
            ) u
            where u.lexeme = any(:lexemes) or u.lexeme like any(:prefix_patterns)
            group by 1
        ) f
    ) found
    where m.terms @@ :any::tsquery
),
frequencies as (
    select array_agg(f.lexeme) as lexemes, array_agg(f.frequency::int) as times
    from (
        select u.lexeme, count(*) as frequency
        from matched m
        cross join lateral unnest(m.lexemes) as u (lexeme)
        where not m.masked
        group by u.lexeme
    ) f
)
select
    t.documents, t.mean_length, f.lexemes, f.times, null as repo, null as space, null as rkey, null as term_count,
    null as effective_at, t.indexed_at, null as masked, null as content_hash, null as content_bytes,
    null as needs_recheck
from totals t
cross join frequencies f
union all
(
    select
        null, null, m.lexemes, m.times, m.repo, m.space, m.rkey, m.term_count,
        m.effective_at, m.indexed_at, m.masked, m.content_hash, m.content_bytes, m.needs_recheck
    from matched m
    where m.content_hash is not null
    order by m.effective_at desc, m.repo, m.space, m.rkey
    limit :max_candidates::int
);

-- name: search_all_sample
-- The corpus of a search over all authors, one row for each alternative: how many of the latest public memories
-- (`sample_size`, of `mean_length`, from `oldest` to `newest`) have it, of how many `authors`. Replaced memories count too:
-- to leave them out of `documents` would take a walk through all. There is no watermark: a first page has none, and later
-- ones count alike.
with latest as materialized (
    select m.repo, m.terms, m.term_count, m.effective_at
    from memories m
    join repos r on r.repo = m.repo and r.space = m.space and r.visible
    where m.space = '' and (:as_of::timestamptz is null or m.effective_at <= :as_of)
    order by m.effective_at desc, m.repo desc, m.rkey desc
    limit :max_sampled::int
),
sample as materialized (
    select
        count(*) as sample_size, coalesce(avg(l.term_count), 0)::float8 as mean_length,
        min(l.effective_at) as oldest, max(l.effective_at) as newest
    from latest l
),
everything as materialized (
    select coalesce(sum(r.memory_count), 0) as documents
    from repos r
    where r.visible and (r.space = '' or r.space = any(:spaces::text[]))
)
select a.alternative, found.sampled, found.authors, e.documents, s.sample_size, s.mean_length, s.oldest, s.newest
from unnest(:alternatives::text[], :queries::text[]) as a (alternative, query)
cross join lateral (
    select count(*) as sampled, count(distinct l.repo) as authors
    from latest l
    where l.terms @@ a.query::tsquery
) found
cross join everything e
cross join sample s;

-- name: search_all_counts
-- How many readable memories have each alternative, counted up to :max_counted, and when the latest of those was indexed.
with spaces as materialized (
    select r.repo, r.space
    from unnest(:spaces::text[]) as readable (space)
    join repos r on r.space = readable.space and r.visible
)
select a.alternative, counted.matches, counted.indexed_at
from unnest(:alternatives::text[], :queries::text[]) as a (alternative, query)
cross join lateral (
    select count(*) as matches, max(m.indexed_at) as indexed_at
    from (
        (
            select m.indexed_at
            from memories m
            join repos r on r.repo = m.repo and r.space = m.space and r.visible
            where m.space = '' and m.terms @@ a.query::tsquery
                and (:as_of::timestamptz is null or m.effective_at <= :as_of)
                and (:watermark::timestamptz is null or m.indexed_at <= :watermark)
        )
        union all
        (
            select m.indexed_at
            from spaces s
            cross join lateral (
                select m.indexed_at
                from memories m
                where m.repo = s.repo and m.space = s.space and m.terms @@ a.query::tsquery
                    and (:as_of is null or m.effective_at <= :as_of)
                    and (:watermark is null or m.indexed_at <= :watermark)
                offset 0 -- so that each repo is gone to by its key
            ) m
        )
        limit :max_counted::int
    ) m
) counted;

-- name: search_all
-- Candidates among the memories of all authors: the latest that have what `:any` asks for and pass every filter; of the
-- public ones, those from :since on, if it is not null.
with picked as (
    (
        select m.repo, m.space, m.rkey, m.terms, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes,
            case
                when :include_superseded::bool then false
                when :as_of::timestamptz is null then m.masked_from is not null
                when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
                else m.masked_spans @> :as_of
            end as masked
        from memories m
        join repos r on r.repo = m.repo and r.space = m.space and r.visible
        where m.space = ''
            and m.terms @@ :any::tsquery
            and (:since::timestamptz is null or m.effective_at >= :since)
            and (:as_of is null or m.effective_at <= :as_of)
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
        -- No index is in this order: a walk back in time may find few.
        order by m.effective_at + interval '0' desc, m.repo, m.rkey
        limit :max_candidates::int
    )
    union all
    (
        select m.*
        from unnest(:spaces::text[]) as readable (space)
        join repos r on r.space = readable.space and r.visible
        cross join lateral (
            select m.repo, m.space, m.rkey, m.terms, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes,
                case
                    when :include_superseded::bool then false
                    when :as_of::timestamptz is null then m.masked_from is not null
                    when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
                    else m.masked_spans @> :as_of
                end as masked
            from memories m
            where m.repo = r.repo and m.space = r.space
                and m.terms @@ :any::tsquery
                and (:as_of is null or m.effective_at <= :as_of)
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
            offset 0 -- so that each repo is gone to by its key
        ) m
    )
)
select
    m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.masked, found.lexemes, found.times,
    hashtextextended(m.content, 0) as content_hash,
    m.content_bytes, coalesce(m.terms @@ :recheck::tsquery, false) as needs_recheck
from (
    select * from picked order by effective_at desc, repo, space, rkey limit :max_candidates
) m
cross join lateral (
    select array_agg(f.lexeme) as lexemes, array_agg(f.times) as times
    from (
        select
            case
                when u.lexeme = any(:lexemes) then u.lexeme
                when cardinality(:prefixes::text[]) = 1 then (:prefixes)[1] || chr(1114111) -- nearly always
                else (
                    select max(p.prefix) || chr(1114111)
                    from unnest(:prefixes) as p (prefix)
                    where starts_with(u.lexeme, p.prefix)
                )
            end as lexeme,
            sum(cardinality(u.positions))::int as times
        from unnest(
            case
                when :prefix_patterns::text[] <> '{}' then m.terms
                else ts_filter(setweight(m.terms, 'A', :lexemes::text[]), '{a}') -- much less to take apart
            end
        ) u
        where u.lexeme = any(:lexemes) or u.lexeme like any(:prefix_patterns)
        group by 1
    ) f
) found;

-- name: explain_memory
-- What the filters, in their order, and the query's words make of one readable memory. No filter is applied.
select
    m.repo, m.space, m.rkey, m.term_count, m.effective_at, m.indexed_at, m.content, m.content_bytes, false as needs_recheck,
    hashtextextended(m.content, 0) as content_hash,
    case
        when :include_superseded::bool then false
        when :as_of::timestamptz is null then m.masked_from is not null
        when m.masked_spans is null then m.masked_from is not null and m.masked_from <= :as_of
        else m.masked_spans @> :as_of
    end as masked,
    found.lexemes, found.times,
    (:repos::text[] is null or m.repo = any(:repos)) as passes_repo,
    (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes)) as passes_scope,
    (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds)) as passes_kind,
    (:agents::text[] is null or coalesce(m.agent, '') = any(:agents)) as passes_agent,
    (:clients::text[] is null or coalesce(m.client, '') = any(:clients)) as passes_client,
    (:created_after::timestamptz is null or m.created_at >= :created_after) as passes_created_after,
    (:created_before::timestamptz is null or m.created_at < :created_before) as passes_created_before,
    coalesce(:occurred_after::timestamptz is null or m.occurred_to > :occurred_after, false) as passes_occurred_after,
    coalesce(:occurred_before::timestamptz is null or m.occurred_from < :occurred_before, false) as passes_occurred_before,
    (:as_of is null or m.effective_at <= :as_of) as passes_as_of
from repos r
join memories m on m.repo = r.repo and m.space = r.space
cross join lateral (
    select array_agg(f.lexeme) as lexemes, array_agg(f.times) as times
    from (
        select
            case
                when u.lexeme = any(:lexemes) then u.lexeme
                when cardinality(:prefixes::text[]) = 1 then (:prefixes)[1] || chr(1114111) -- nearly always
                else (
                    select max(p.prefix) || chr(1114111)
                    from unnest(:prefixes) as p (prefix)
                    where starts_with(u.lexeme, p.prefix)
                )
            end as lexeme,
            sum(cardinality(u.positions))::int as times
        from unnest(
            case
                when :prefix_patterns::text[] <> '{}' then m.terms
                else ts_filter(setweight(m.terms, 'A', :lexemes::text[]), '{a}') -- much less to take apart
            end
        ) u
        where u.lexeme = any(:lexemes) or u.lexeme like any(:prefix_patterns)
        group by 1
    ) f
) found
where r.visible and r.repo = :repo::text and r.space = :space::text and m.rkey = :rkey::text
    and (m.space = '' or m.space = any(:spaces::text[]));

-- name: contents_by_key
-- The contents in which phrases are looked for, of memories that were found before.
select m.repo, m.space, m.rkey, m.content
from unnest((select :repos::text[]), (select :spaces_of::text[]), (select :rkeys::text[])) as k (repo, space, rkey)
cross join lateral (
    select * from memories m where m.repo = k.repo and m.space = k.space and m.rkey = k.rkey
    offset 0 -- so that each memory is gone to by its key
) m
join repos r on r.repo = m.repo and r.space = m.space and r.visible
where m.space = '' or m.space = any(:spaces::text[]);
