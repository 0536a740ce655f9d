-- name: page_cursor_key
-- The key that authenticates page cursors, shared by all API processes.
select value from settings where name = 'page_cursor_key';
