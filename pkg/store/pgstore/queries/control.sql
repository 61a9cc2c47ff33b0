-- Messages that change more than their own row: /new and edits. Like all rows of T1 they follow LockSessions.

-- name: EnsureSession :exec
-- Comes before AdmitReset, which only updates: ON CONFLICT cannot return the old values, and the fence is made of them.
insert into sessions (skey, tenant, session_key, session_id, part, agent_id, run_class, state, gen, last_seq)
values (@skey, @tenant, @session_key, @session_id, @part, @agent_id, @run_class, 'idle', 0, 0) on conflict (skey) do nothing;

-- name: AdmitReset :many
-- /new. No row = duplicate. The current run ends as cancelled and covers all rows up to this one; without a run, rows
-- that wait get a cancelled run, and if none wait the next run covers this row: ranges of final runs follow each other.
-- The cancelled run has no owner, so that no worker takes it for its own commit. resumed: the conversation is not a fresh
-- one but this session's, which is refused otherwise; with a parent it is fresh, and forked from that.
with l as materialized (
  select skey, session_id, run_id, done_seq, created_at from sessions
  where skey = @skey::text and not exists (select from inbox where msg_uid = @uid::text and (skey || '') = @skey::text)
  for update
), v as materialized (
  select l.skey, case when not @resumed::bool or l.session_id = @session_id::uuid or exists (
      select from conversations c where c.session_id = @session_id::uuid and (c.skey || '') = @skey::text
    ) then 0 else engine_refuse('not a conversation of the session') end as ok from l
), s as (
  update sessions x set last_seq = x.last_seq + 1, gen = x.gen + 1, owner = null, run_id = null, session_id = @session_id::uuid,
    state = case when x.state = 'paused' then 'paused' else 'idle' end,
    done_seq = case when x.run_id is not null or x.done_seq < x.last_seq then x.last_seq + 1 else x.done_seq end,
    out_seq = x.out_seq + (@notice::jsonb is not null)::int,
    out_sent = case when x.out_sent = x.out_seq and @notice_read::bool then x.out_seq + (@notice::jsonb is not null)::int else x.out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now()
  from l join v on v.skey = l.skey where v.ok = 0 and x.skey = any(array[l.skey])
  returning x.skey, x.gen, x.state, x.last_seq, x.done_seq, x.agent_id, x.out_seq, l.run_id as old_run,
    l.session_id as old_session, l.done_seq as old_done, l.created_at
), i as (
  insert into inbox (skey, seq, msg_uid, kind, body, grp, stream_seq, traceparent)
  select skey, last_seq, @uid::text, @kind::text, @body::jsonb, nullif(@grp::text, ''), @stream_seq::bigint, @traceparent::text from s
), t as (
  insert into inbox_items (skey, item_uid, seq) select skey, unnest(@items::text[]), last_seq from s on conflict do nothing
), d as (
  update runs set state = 'cancelled', owner = null, from_seq = s.old_done + 1, to_seq = s.last_seq, ended_at = now()
  from s where runs.run_id = any(array[s.old_run])
), x as ( -- see Finish
  update tool_calls set state = case when effect = 'unsafe' then 'unknown' else 'failed' end
  from s where tool_calls.run_id = any(array[s.old_run]) and tool_calls.state = 'intent'
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, from_seq, to_seq, ended_at, traceparent)
  select @run_id::uuid, skey, old_session, agent_id, 'cancelled', gen, gen, old_done + 1, last_seq, now(), @traceparent::text
  from s where old_run is null and done_seq > old_done
), e as ( -- the first conversation of a session gets its row when it ends; now() would be before a wait for the lock
  insert into conversations (session_id, skey, started_at, ended_at, end_reason)
  select old_session, skey, created_at, clock_timestamp(), case when @resumed::bool or sqlc.narg(parent)::uuid is not null then 'resume' else 'new' end
  from s where last_seq > 1 and not (@resumed::bool and old_session = @session_id::uuid)
  on conflict (session_id) do update set ended_at = excluded.ended_at, end_reason = excluded.end_reason
), b as (
  insert into conversations (session_id, skey, parent, parent_upto, started_at)
  select @session_id::uuid, skey, sqlc.narg(parent)::uuid, sqlc.narg(parent_upto)::bigint, clock_timestamp() from s where not @resumed::bool
), u as (
  update conversations c set ended_at = null, end_reason = null from s where @resumed::bool and c.session_id = @session_id::uuid
), o as (
  insert into outbox (skey, out_seq, dkey, platform, target, parts, state, next_at, traceparent)
  select skey, out_seq, coalesce(@notice::jsonb->>'dkey', @uid::text || ':' || @kind::text), @notice::jsonb->>'platform',
    @notice::jsonb->'target', @notice::jsonb->'parts', case when @notice_read::bool then 'sent' else 'pending' end,
    now() + interval '3 s', @traceparent::text
  from s where @notice::jsonb is not null
)
select last_seq, gen, state, old_run, (case when @notice::jsonb is null then 0 else out_seq end)::bigint as notice_seq, done_seq from s;

-- name: AdmitEdit :many
-- No row = a run was finished with the row, or there is none. The session is locked, not written: a run that has read the
-- row goes on with the text that it has.
with l as materialized (
  select done_seq from sessions where skey = @skey::text for update
)
update inbox i set body = @body::jsonb from l
where i.skey = @skey::text and i.seq = @seq::bigint and i.seq > l.done_seq
returning i.skey, i.seq;
