-- The roles' passwords, out of the environment: for `compose.yaml`, after `roles.sql`.
\getenv indexer_password MEMORY_INDEXER_PASSWORD
\getenv appview_password MEMORY_APPVIEW_PASSWORD
alter role memory_indexer password :'indexer_password';
alter role memory_appview password :'appview_password';
