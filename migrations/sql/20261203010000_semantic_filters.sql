-- migrate:up

-- A search by meaning over all authors compares all memories that pass its filters, if they are few. By these they are found.
-- Kinds, scopes, agents and clients as one set of words, each by its beginning: any combination is found by one index.
create index memories_public_labels on memories using gin (array_to_tsvector(array[
    'k' || left(coalesce(kind, ''), 100), 's' || left(coalesce(scope, ''), 100),
    'a' || left(coalesce(agent, ''), 100), 'c' || left(coalesce(client, ''), 100)
])) where space = '';
create index memories_public_by_creation on memories (created_at) where space = '';
create index memories_public_by_occurrence_end on memories (occurred_to) where space = '' and occurred_to is not null;

-- migrate:down
