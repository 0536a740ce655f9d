-- name: take_lease
-- One reader a source: takes the lease where it is free, ours or run out; no row: another has it.
insert into leases (source, holder, expires_at)
values (:source, :holder, now() + :ttl::interval)
on conflict (source) do update set holder = excluded.holder, expires_at = excluded.expires_at
where leases.holder = excluded.holder or leases.expires_at < now()
returning source;

-- name: give_up_lease
-- At a regular stop, so that another need not wait.
delete from leases where source = :source and holder = :holder;

-- name: source_state
-- Where a source goes on, and whether it was stopped.
select seq, stopped_reason from sources where source = :source;

-- name: begin_source
-- The cursor of a first start, before anything else of the stream is stored.
insert into sources (source, seq, updated_at) values (:source, :seq, :now)
on conflict (source) do nothing;

-- name: stop_source
-- It cannot go on without an operator.
update sources set stopped_reason = :reason, updated_at = :now where source = :source;

-- name: note_gap
-- Frames were lost; the first loss is the one that counts.
update sources set gap_at = coalesce(gap_at, :now) where source = :source;

-- name: set_cursor
-- An operator's word: the stream goes on after this seq, and what its accounts' events said before is numbered anew.
insert into sources (source, seq, updated_at) values (:source, :seq, :now)
on conflict (source) do update set
    seq = excluded.seq, updated_at = excluded.updated_at, stopped_reason = null, frame_time = null;

-- name: forget_account_seqs
-- After a cursor was set: the next word of the source counts, whatever its seq.
update account_status set seq = 0 where source = :source;

-- name: times_met
-- How often the same bytes were met at the same place.
select times_met from quarantine
where source = :source and sha256 = sha256(:frame::bytea) and previous_seq = :previous_seq;
