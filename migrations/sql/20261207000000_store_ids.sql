-- migrate:up

-- Stores by their ids' hashes: public ones apart from those in Spaces, and those Space by Space, so that looking for an id
-- visits nothing in a Space that may not be read, whoever made the id up.
drop index repos_by_id;
create index repos_by_id on repos (substring(sha256(('at://' || repo)::bytea) for 16)) where space = '';
create index repos_in_space_by_id on repos (space, substring(sha256((space || '/' || repo)::bytea) for 16)) where space <> '';

-- migrate:down
