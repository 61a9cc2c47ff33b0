-- T1 admits messages: one transaction per router over all its partitions, one pipeline: AdmitOffsets, [LockSessions,]
-- rows. Rules that all statements keep are in docs/architecture.md.
--
-- Joins on the first column of a key are spelled a.key = any(array[b.key]) in all files. A connection plans a statement
-- once, often over empty tables, and then keeps the plan: with a plain equality it would read a whole index and join
-- that. The array leaves one plan, an index lookup for each row of b. (skey || '') is not an index key: the other
-- condition finds the row. TestHotStatements_LookUpEveryRowByItsKey holds the plans to this.

-- name: AdmitOffsets :one
-- Compare-and-swap of the offsets, the first statement of the pipeline. If any has moved it raises HE001 with the
-- partitions as detail, so that the rest is skipped and nothing is committed. Offsets and rows are never one statement:
-- the rows need a snapshot taken after the offset lock.
with l as materialized (
  select part from ingest_offsets where part = any(@parts::int[]) order by part for update
), k as (
  select unnest(@parts::int[]) as part, unnest(@old_seqs::bigint[]) as old, unnest(@new_seqs::bigint[]) as new,
    unnest(@uids::text[]) as uid
), u as (
  update ingest_offsets o set last_seq = k.new, last_uid = k.uid, last_ts = now() from k
  where (select count(*) from l) >= 0 and o.part = k.part and o.last_seq = k.old returning o.part
)
select (case when count(*) = cardinality(@parts::int[]) then 0
  else engine_offset_moved(array(select unnest(@parts::int[]) except select part from u)) end)::int as ok from u;

-- name: LockSessions :many
-- The second statement if more than one with rows follows, and the first of every pipeline of single forms: without it
-- two of them deadlock within seconds.
select skey from sessions where skey = any(@skeys::text[]) order by skey for update;

-- name: AdmitBatch :many
-- Set form for plain messages (each wants a run and wakes none), each skey once per statement. Missing in the result =
-- duplicate.
with l as materialized (
  select skey from sessions where skey = any(@skeys::text[]) order by skey for update
), k as materialized (
  select * from (
    select unnest(@skeys::text[]) as skey, unnest(@tenants::text[]) as tenant, unnest(@session_keys::text[]) as session_key,
      unnest(@session_ids::uuid[]) as session_id, unnest(@parts::smallint[]) as part, unnest(@agent_ids::text[]) as agent_id,
      unnest(@run_classes::text[]) as run_class, unnest(@uids::text[]) as uid, unnest(@kinds::text[]) as kind,
      unnest(@bodies::jsonb[]) as body, unnest(@stream_seqs::bigint[]) as stream_seq, unnest(@traceparents::text[]) as tp,
      unnest(@run_ids::uuid[]) as run
  ) a
  where (select count(*) from l) >= 0 -- all rows are locked before the first one is written
), s as (
  insert into sessions as x (skey, tenant, session_key, session_id, part, agent_id, run_class, state, gen, run_id,
    last_seq, want_seq, queued_at)
  select k.skey, k.tenant, k.session_key, k.session_id, k.part, k.agent_id, k.run_class, 'queued', 1, k.run, 1, 1, now()
  from k where not exists (
    select from inbox i where i.msg_uid = any(array[k.uid]) and (i.skey || '') = k.skey
      and i.kind <> '' -- is in no index: the key alone could be read instead of looked up
  ) order by k.skey
  on conflict (skey) do update set
    last_seq  = x.last_seq + 1,
    want_seq  = x.last_seq + 1,
    gen       = case when x.state = 'idle' then x.gen + 1 else x.gen end,
    run_id    = case when x.state = 'idle' then excluded.run_id else x.run_id end,
    queued_at = case when x.state = 'idle' then now() else x.queued_at end,
    state     = case when x.state = 'idle' then 'queued' else x.state end
  returning skey, gen, run_id, state, last_seq, owner, stop_run, session_id, agent_id, done_seq
), i as (
  insert into inbox (skey, seq, msg_uid, kind, body, stream_seq, traceparent)
  select s.skey, s.last_seq, k.uid, k.kind, k.body, k.stream_seq, k.tp from s join k on k.skey = s.skey
), r as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen, k.tp
  from s join k on k.skey = s.skey where s.run_id = k.run
)
select s.skey, s.gen, s.run_id, s.state, s.last_seq, s.owner, s.stop_run,
  (s.run_id is not distinct from k.run)::bool as created, 0::bigint as notice_seq, s.done_seq, k.kind::text as row_kind
from s join k on k.skey = s.skey;

-- name: AdmitMessage :many
-- Single form, in the order of the messages. No row = duplicate. A stop names the run that is current in this very
-- statement, and so does an interruption of a run that has begun. A row that wants a run begins one in an idle session,
-- or a quiet window (state waiting, without a run); what ends the window makes its run. reject_if_busy: the row is refused
-- unless the session is idle. The notice, if not null, is an outbox row {dkey, platform, target, parts}; read = born sent,
-- if_idle = only if the session has no run before this row; beside reject_if_busy it is written with a refusal only.
with s as (
  insert into sessions as x (skey, tenant, session_key, session_id, part, agent_id, run_class, state, gen, run_id,
    last_seq, want_seq, wake_seq, out_seq, out_sent, queued_at, wait_kind, wake_at)
  select @skey::text, @tenant::text, @session_key::text, @session_id::uuid, @part::smallint, @agent_id::text, @run_class::text,
    case when @wants_run::bool and @collects::bool then 'waiting' when @wants_run::bool then 'queued' else 'idle' end,
    (@wants_run::bool and not @collects::bool)::int, case when @wants_run::bool and not @collects::bool then @run_id::uuid end,
    1, (@wants_run::bool)::int, (@wakes::bool)::int, (@notice::jsonb is not null and not @reject_if_busy::bool)::int,
    (@notice::jsonb is not null and not @reject_if_busy::bool and @notice_read::bool)::int,
    case when @wants_run::bool then now() end, case when @wants_run::bool and @collects::bool then 'collect' end,
    case when @wants_run::bool and @collects::bool then now() + interval '1 microsecond' * least(@quiet_us::bigint, @max_us::bigint) end
  where not exists (select from inbox where msg_uid = @uid::text and (skey || '') = @skey::text)
  on conflict (skey) do update set
    last_seq  = x.last_seq + 1,
    want_seq  = case when @wants_run::bool and not (@reject_if_busy::bool and x.state <> 'idle') then x.last_seq + 1 else x.want_seq end,
    wake_seq  = case when @wakes::bool or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null) then x.last_seq + 1 else x.wake_seq end,
    ctl_seq   = case when @steer::bool or @stop::bool or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null) then x.last_seq + 1 else x.ctl_seq end,
    stop_at   = case when (@stop::bool or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null)) and x.run_id is distinct from x.stop_run then now() else x.stop_at end,
    stop_run  = case when @stop::bool or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null) then x.run_id else x.stop_run end,
    out_seq   = x.out_seq + (@notice::jsonb is not null and case when @reject_if_busy::bool then x.state <> 'idle' else not @notice_if_idle::bool or x.run_id is null end)::int,
    out_sent  = case when x.out_sent = x.out_seq and @notice_read::bool then x.out_sent + (@notice::jsonb is not null and case when @reject_if_busy::bool then x.state <> 'idle' else not @notice_if_idle::bool or x.run_id is null end)::int else x.out_sent end,
    gen       = case when ((x.state = 'idle' and @wants_run::bool) and not @collects::bool) or (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then x.gen + 1 else x.gen end,
    run_id    = case when ((x.state = 'idle' and @wants_run::bool) and not @collects::bool) or (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then coalesce(x.run_id, @run_id::uuid) else x.run_id end,
    queued_at = case when (x.state = 'idle' and @wants_run::bool) or (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then now() else x.queued_at end,
    wake_at   = case when (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then null
      when (x.state = 'idle' and @wants_run::bool) and @collects::bool then now() + interval '1 microsecond' * least(@quiet_us::bigint, @max_us::bigint)
      when x.state = 'waiting' and x.wait_kind = 'collect' and @collects::bool
        then least(now() + interval '1 microsecond' * @quiet_us::bigint, x.queued_at + interval '1 microsecond' * @max_us::bigint)
      else x.wake_at end,
    wait_kind = case when (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then null when (x.state = 'idle' and @wants_run::bool) and @collects::bool then 'collect' else x.wait_kind end,
    state     = case when ((x.state = 'idle' and @wants_run::bool) and not @collects::bool) or (x.state = 'waiting' and (@wakes::bool or @ends_collect::bool and x.wait_kind = 'collect' or (@interrupt::bool and x.state in ('running', 'waiting') and x.run_id is not null))) then 'queued' when (x.state = 'idle' and @wants_run::bool) then 'waiting' else x.state end
  returning skey, gen, run_id, state, last_seq, owner, stop_run, session_id, agent_id, queued_at, out_seq, done_seq,
    -- Only what began a run in an idle session has the fresh run.
    (case when @reject_if_busy::bool and run_id is distinct from @run_id::uuid then 'refused' else @kind::text end)::text as row_kind,
    (@notice::jsonb is not null and case when @reject_if_busy::bool then run_id is distinct from @run_id::uuid
      else not @notice_if_idle::bool or coalesce(run_id = @run_id::uuid, true) end) as noticed
), i as (
  insert into inbox (skey, seq, msg_uid, kind, body, grp, stream_seq, traceparent)
  select skey, last_seq, @uid::text, row_kind, @body::jsonb, nullif(@grp::text, ''), @stream_seq::bigint, @traceparent::text from s
), t as (
  insert into inbox_items (skey, item_uid, seq) select skey, unnest(@items::text[]), last_seq from s on conflict do nothing
), r as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select run_id, skey, session_id, agent_id, 'queued', gen, gen, @traceparent::text from s where run_id = @run_id::uuid
), w as ( -- a waiting run was woken (now() is the time of this transaction)
  update runs set state = 'queued', last_gen = s.gen from s
  where runs.run_id = any(array[s.run_id]) and s.run_id <> @run_id::uuid and s.state = 'queued' and s.queued_at = now()
), o as (
  insert into outbox (skey, out_seq, dkey, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq, coalesce(@notice::jsonb->>'dkey', @uid::text || ':' || @kind::text), @notice::jsonb->>'platform',
    @notice::jsonb->'target', @notice::jsonb->'parts', case when @notice_read::bool then 'sent' else 'pending' end,
    now() + interval '3 s', @traceparent::text
  from s where s.noticed
)
select skey, gen, run_id, state, last_seq, owner, stop_run, (run_id is not distinct from @run_id::uuid)::bool as created,
  (case when noticed then out_seq else 0 end)::bigint as notice_seq, done_seq, row_kind
from s;

-- name: InsertDeadLetters :exec
insert into dead_letters (id, kind, ref, reason, payload)
select unnest(@ids::uuid[]), unnest(@kinds::text[]), unnest(@refs::text[]), unnest(@reasons::text[]), unnest(@payloads::jsonb[])
on conflict (id) do nothing;

-- name: GetOffsets :many
select part, stream, stream_created, last_seq, last_uid, last_ts from ingest_offsets
where part = any(@parts::int[]) order by part;

-- name: CreateOffset :execrows
insert into ingest_offsets (part, stream, stream_created, last_seq, last_uid, last_ts)
values (@part, @stream, @stream_created, @last_seq, @last_uid, @last_ts) on conflict (part) do nothing;

-- name: ReplaceOffset :execrows
update ingest_offsets set stream = @stream, stream_created = @stream_created, last_seq = @last_seq, last_uid = @last_uid,
  last_ts = @last_ts
where part = @part and stream = @old_stream and stream_created = @old_stream_created and last_seq = @old_last_seq;
