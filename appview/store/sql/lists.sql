-- The three orders of listRecords, each over all authors (public memories, by an index of their own) and over some (what
-- they have in `:spaces`, and if `:public`, in public).
-- A position is the last place that was listed: (dated, sort_at, repo, rkey, space). It changes only with its record.

-- name: list_newest
-- Public memories of all authors, latest in effect first.
select m.repo, m.space, m.rkey, true as dated, m.effective_at as sort_at
from memories m
where m.space = ''
    and (m.effective_at, m.repo, m.rkey, m.space) < (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
    and exists (select from repos r where r.repo = m.repo and r.space = m.space and r.visible)
    and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
    and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
    and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
    and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
    and (:created_after::timestamptz is null or m.created_at >= :created_after)
    and (:created_before::timestamptz is null or m.created_at < :created_before)
    and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
    and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
    and (:as_of::timestamptz is null or m.effective_at <= :as_of)
    and (
        :include_superseded::bool
        or case
            when :as_of is null then m.masked_from is null
            when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
            else not m.masked_spans @> :as_of
        end
    )
order by m.effective_at desc, m.repo desc, m.rkey desc
limit :limit::int;

-- name: list_newest_of
-- Readable memories of some authors, latest in effect first: as many of each as a page may need, then the page.
select m.repo, m.space, m.rkey, true as dated, m.effective_at as sort_at
from repos r
cross join lateral (
    select m.repo, m.space, m.rkey, m.effective_at
    from memories m
    where m.repo = r.repo and m.space = r.space
        and (m.effective_at, m.repo, m.rkey, m.space) < (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
        and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
        and (:as_of::timestamptz is null or m.effective_at <= :as_of)
        and (
            :include_superseded::bool
            or case
                when :as_of is null then m.masked_from is null
                when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                else not m.masked_spans @> :as_of
            end
        )
    order by m.effective_at desc, m.rkey desc
    limit :limit::int
) m
where r.visible and r.repo = any(:repos::text[]) and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
order by m.effective_at desc, m.repo desc, m.rkey desc, m.space desc
limit :limit;

-- name: list_oldest
-- Public memories of all authors, earliest in effect first.
select m.repo, m.space, m.rkey, true as dated, m.effective_at as sort_at
from memories m
where m.space = ''
    and (m.effective_at, m.repo, m.rkey, m.space) > (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
    and exists (select from repos r where r.repo = m.repo and r.space = m.space and r.visible)
    and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
    and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
    and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
    and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
    and (:created_after::timestamptz is null or m.created_at >= :created_after)
    and (:created_before::timestamptz is null or m.created_at < :created_before)
    and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
    and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
    and (:as_of::timestamptz is null or m.effective_at <= :as_of)
    and (
        :include_superseded::bool
        or case
            when :as_of is null then m.masked_from is null
            when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
            else not m.masked_spans @> :as_of
        end
    )
order by m.effective_at, m.repo, m.rkey
limit :limit::int;

-- name: list_oldest_of
-- Readable memories of some authors, earliest in effect first: as many of each as a page may need, then the page.
select m.repo, m.space, m.rkey, true as dated, m.effective_at as sort_at
from repos r
cross join lateral (
    select m.repo, m.space, m.rkey, m.effective_at
    from memories m
    where m.repo = r.repo and m.space = r.space
        and (m.effective_at, m.repo, m.rkey, m.space) > (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
        and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
        and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
        and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
        and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
        and (:created_after::timestamptz is null or m.created_at >= :created_after)
        and (:created_before::timestamptz is null or m.created_at < :created_before)
        and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
        and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
        and (:as_of::timestamptz is null or m.effective_at <= :as_of)
        and (
            :include_superseded::bool
            or case
                when :as_of is null then m.masked_from is null
                when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                else not m.masked_spans @> :as_of
            end
        )
    order by m.effective_at, m.rkey
    limit :limit::int
) m
where r.visible and r.repo = any(:repos::text[]) and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
order by m.effective_at, m.repo, m.rkey, m.space
limit :limit;

-- name: list_occurred
-- Public memories of all authors by when what they tell of began, latest first, then those that do not say.
select m.repo, m.space, m.rkey, m.dated, m.sort_at
from (
    (
        select m.repo, m.space, m.rkey, true as dated, m.occurred_from as sort_at
        from memories m
        where m.space = ''
            and m.occurred_from is not null
            and :dated::bool
            and (m.occurred_from, m.repo, m.rkey, m.space)
                < (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
            and exists (select from repos r where r.repo = m.repo and r.space = m.space and r.visible)
            and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
            and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
            and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
            and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
            and (:created_after::timestamptz is null or m.created_at >= :created_after)
            and (:created_before::timestamptz is null or m.created_at < :created_before)
            and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
            and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
            and (:as_of::timestamptz is null or m.effective_at <= :as_of)
            and (
                :include_superseded::bool
                or case
                    when :as_of is null then m.masked_from is null
                    when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                    else not m.masked_spans @> :as_of
                end
            )
        order by m.occurred_from desc, m.repo desc, m.rkey desc
        limit :limit::int
    )
    union all
    (
        select m.repo, m.space, m.rkey, false as dated, m.effective_at as sort_at
        from memories m
        where m.space = ''
            and m.occurred_from is null
            and (:dated or (m.effective_at, m.repo, m.rkey, m.space) < (:sort_at, :at_repo, :at_rkey, :at_space))
            and exists (select from repos r where r.repo = m.repo and r.space = m.space and r.visible)
            and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
            and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
            and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
            and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
            and (:created_after::timestamptz is null or m.created_at >= :created_after)
            and (:created_before::timestamptz is null or m.created_at < :created_before)
            and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
            and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
            and (:as_of::timestamptz is null or m.effective_at <= :as_of)
            and (
                :include_superseded::bool
                or case
                    when :as_of is null then m.masked_from is null
                    when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                    else not m.masked_spans @> :as_of
                end
            )
        order by m.effective_at desc, m.repo desc, m.rkey desc
        limit :limit::int
    )
) m
order by m.dated desc, m.sort_at desc, m.repo desc, m.rkey desc
limit :limit;

-- name: list_occurred_of
-- Readable memories of some authors by when what they tell of began, latest first, then those that do not say.
select m.repo, m.space, m.rkey, m.dated, m.sort_at
from repos r
cross join lateral (
    (
        select m.repo, m.space, m.rkey, true as dated, m.occurred_from as sort_at
        from memories m
        where m.repo = r.repo and m.space = r.space
            and m.occurred_from is not null
            and :dated::bool
            and (m.occurred_from, m.repo, m.rkey, m.space)
                < (:sort_at::timestamptz, :at_repo::text, :at_rkey::text, :at_space::text)
            and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
            and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
            and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
            and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
            and (:created_after::timestamptz is null or m.created_at >= :created_after)
            and (:created_before::timestamptz is null or m.created_at < :created_before)
            and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
            and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
            and (:as_of::timestamptz is null or m.effective_at <= :as_of)
            and (
                :include_superseded::bool
                or case
                    when :as_of is null then m.masked_from is null
                    when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                    else not m.masked_spans @> :as_of
                end
            )
        order by m.occurred_from desc, m.repo desc, m.rkey desc
        limit :limit::int
    )
    union all
    (
        select m.repo, m.space, m.rkey, false as dated, m.effective_at as sort_at
        from memories m
        where m.repo = r.repo and m.space = r.space
            and m.occurred_from is null
            and (:dated or (m.effective_at, m.repo, m.rkey, m.space) < (:sort_at, :at_repo, :at_rkey, :at_space))
            and (:kinds::text[] is null or coalesce(m.kind, '') = any(:kinds))
            and (:scopes::text[] is null or coalesce(m.scope, '') = any(:scopes))
            and (:agents::text[] is null or coalesce(m.agent, '') = any(:agents))
            and (:clients::text[] is null or coalesce(m.client, '') = any(:clients))
            and (:created_after::timestamptz is null or m.created_at >= :created_after)
            and (:created_before::timestamptz is null or m.created_at < :created_before)
            and (:occurred_after::timestamptz is null or m.occurred_to > :occurred_after)
            and (:occurred_before::timestamptz is null or m.occurred_from < :occurred_before)
            and (:as_of::timestamptz is null or m.effective_at <= :as_of)
            and (
                :include_superseded::bool
                or case
                    when :as_of is null then m.masked_from is null
                    when m.masked_spans is null then m.masked_from is null or m.masked_from > :as_of
                    else not m.masked_spans @> :as_of
                end
            )
        order by m.effective_at desc, m.repo desc, m.rkey desc
        limit :limit::int
    )
) m
where r.visible and r.repo = any(:repos::text[]) and (r.space = '' and :public::bool or r.space = any(:spaces::text[]))
order by m.dated desc, m.sort_at desc, m.repo desc, m.rkey desc, m.space desc
limit :limit;

-- name: repos_in_spaces
-- The authors with memories in some Spaces.
select distinct r.repo
from unnest(:spaces::text[]) as readable (space)
join repos r on r.space = readable.space and r.visible;

-- name: repos_by_handle
-- Whose verified handles these are; of several that claim one, whoever was resolved last.
select distinct on (i.handle) i.handle, i.repo
from identities i
where i.handle = any(:handles::text[]) and not i.tombstoned
order by i.handle, i.resolved_at desc, i.repo;
