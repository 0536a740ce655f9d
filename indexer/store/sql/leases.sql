-- name: take_lease
-- One reader a source: takes the lease where it is free, ours or run out; no row: another has it.
insert into leases (source, holder, expires_at)
values (:source, :holder, now() + :ttl::interval)
on conflict (source) do update set holder = excluded.holder, expires_at = excluded.expires_at,
    tracks_as_of = case when leases.holder = excluded.holder then leases.tracks_as_of else '-infinity' end
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
-- What was tracked before may have missed what this source had to tell.
insert into sources (source, seq, updated_at, gap_at)
values (:source, :seq, :now::timestamptz, case when exists (select from repos) then :now::timestamptz end)
on conflict (source) do nothing;

-- name: stop_source
-- It cannot go on without an operator.
update sources set stopped_reason = :reason, updated_at = :now where source = :source;

-- name: note_gap
-- Frames were lost; since the first loss is what is told, and all is compared anew.
update sources set gap_at = coalesce(gap_at, :now), gap_compared_to = null where source = :source;

-- name: set_cursor
-- An operator's word: the stream goes on after this seq, and what its accounts' events said before is numbered anew.
insert into sources (source, seq, updated_at) values (:source, :seq, :now)
on conflict (source) do update set
    seq = excluded.seq, updated_at = excluded.updated_at, stopped_reason = null, frame_time = null,
    -- forward, or into a numbering that began anew: what lies between is not read
    gap_at = case
        when sources.stopped_reason is not null or excluded.seq > sources.seq
        then coalesce(sources.gap_at, excluded.updated_at) else sources.gap_at
    end,
    gap_compared_to = null;

-- name: forget_account_seqs
-- After a cursor was set: the next word of the source counts, whatever its seq.
update account_status set seq = 0 where source = :source;

-- name: times_met
-- How often the same bytes were met at the same place.
select times_met from quarantine
where source = :source and sha256 = sha256(:frame::bytea) and previous_seq = :previous_seq;
