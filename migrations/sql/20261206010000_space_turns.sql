-- migrate:up

-- Spaces take turns in being pulled, however much of one is due.
create index space_repos_by_turn on space_repos (space, pull_after) where pull_after is not null;
-- A position names a Space, and no plan needs to know which: nothing of it is sampled.
alter table embedding_models alter column walked_space set statistics 0;

-- migrate:down
