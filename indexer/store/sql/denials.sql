-- name: any_denials
-- Whether an operator took anything down.
select exists (select from denials);

-- name: denied_subjects
-- Which of these are taken down.
select subject_sha256 from denials where subject_sha256 = any(:subjects::bytea[]);

-- name: insert_denials
-- Takedowns.
insert into denials (subject_sha256, denied_at)
select s, :now from unnest(:subjects::bytea[]) as s
on conflict (subject_sha256) do nothing;

-- name: delete_denials
-- Takedowns that are lifted.
delete from denials where subject_sha256 = any(:subjects::bytea[]);
