-- Claim, T3 and T4: every write of a run is one statement that begins with the fenced UPDATE of sessions (CTE s); all
-- other CTEs select from s, so no row in s = nothing written. Decisions come from columns of sessions alone: after a
-- wait for the row lock the statement sees that row new and every other table old.

-- name: ClaimBatch :many
-- T2: a compare-and-swap from queued to running; gen does not change. A repeated claim (the outcome of the first was
-- unknown) finds its own owner, a fresh nonce per claim, and is answered again.
with l as materialized (
  select skey from sessions where skey = any(@skeys::text[]) order by skey for update
), k as (
  select unnest(@skeys::text[]) as skey, unnest(@gens::bigint[]) as gen, unnest(@run_ids::uuid[]) as run_id,
    unnest(@owners::text[]) as owner, unnest(@pins::jsonb[]) as pins
), s as (
  update sessions x set owner = k.owner, state = 'running', touched_at = now() from k
  where (select count(*) from l) >= 0 and x.skey = any(array[k.skey]) and x.gen = k.gen and x.run_id = k.run_id
    and (x.state = 'queued' and x.owner is null or x.state = 'running' and x.owner = k.owner)
  returning x.skey, x.gen, x.run_id, x.owner, x.tenant, x.session_id, x.agent_id, x.done_seq, x.last_seq, x.ctl_seq,
    x.stop_run, x.attempt, x.out_seq, k.pins
), r as (
  update runs set state = 'running', owner = s.owner, last_gen = s.gen, attempts = attempts + 1,
    pins = coalesce(runs.pins, s.pins), started_at = coalesce(started_at, now())
  from s where runs.run_id = any(array[s.run_id])
  returning s.skey, s.gen, s.run_id, s.owner, s.tenant, s.session_id, s.agent_id, s.done_seq, s.last_seq, s.ctl_seq,
    s.stop_run, s.attempt, s.out_seq, runs.first_gen, runs.attempts, runs.pins
)
select skey, gen, run_id, owner, tenant, session_id, agent_id, done_seq, last_seq, ctl_seq, stop_run, attempt, out_seq,
  first_gen, attempts, pins
from r;

-- name: ClaimedInbox :many
-- Only of the sessions that are mine now; a later statement of the claim's pipeline, so that it sees what the claim saw.
-- Sessions are mixed, each has its rows in order.
select i.skey, i.seq, i.msg_uid, i.kind, i.body, i.grp, i.run_id, i.traceparent
from (select unnest(@skeys::text[]) as skey, unnest(@owners::text[]) as owner) k
join sessions s on s.skey = any(array[k.skey]) and s.owner = k.owner
join inbox i on i.skey = any(array[s.skey]) and i.seq > s.done_seq
order by i.seq;

-- name: ClaimedToolCalls :many
select run_id, call_id, name, effect, state, result from tool_calls where run_id = any(@run_ids::uuid[])
order by run_id, created_at, call_id;

-- name: Checkpoint :many
-- T3. No row = fenced. Sent again after an unknown outcome it changes nothing: replies are known by their dkey, which is
-- why LockSessions comes before it where there are any.
with f as materialized (
  select e.v, row_number() over (order by e.ord) as ord from jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
  where not exists (
    select from outbox o where o.dkey = any(array[e.v->>'dkey']) and (o.skey || '') = @skey::text and o.platform <> '' -- see AdmitBatch
  )
), s as (
  update sessions x set touched_at = now(),
    out_seq = out_seq + (select count(*) from f),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + (select count(*) from f) else out_sent end
  where x.skey = @skey::text and x.gen = @gen and x.run_id = @run_id::uuid and x.owner = @owner::text and x.state = 'running'
  returning skey, run_id, session_id, last_seq, ctl_seq, stop_run, out_seq
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, @run_gen::bigint, (e.v->>'branch')::smallint, (e.v->>'n')::int, s.run_id, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(@messages::jsonb) as e(v) on conflict do nothing
), c as (
  insert into tool_calls (run_id, call_id, name, effect, state, idem_key, result)
  select s.run_id, e.v->>'call_id', e.v->>'name', e.v->>'effect', e.v->>'state', s.run_id || ':' || (e.v->>'call_id'),
    e.v->'result'
  from s, jsonb_array_elements(@tool_calls::jsonb) as e(v)
  on conflict (run_id, call_id) do update set state = excluded.state, result = excluded.result
), t as (
  update inbox i set run_id = e.run_id from (select s.skey, s.run_id, unnest(@taken::bigint[]) as seq from s) e
  where i.skey = any(array[e.skey]) and i.seq = e.seq
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - (select count(*) from f) + f.ord, f.v->>'dkey', s.run_id, f.v->>'platform', f.v->'target', f.v->'parts',
    f.v->>'state', now() + interval '3 s', (select r.traceparent from runs r where r.run_id = any(array[s.run_id]))
  from s, f
)
select s.last_seq, s.ctl_seq, s.stop_run, (case when (select count(*) from f) = 0 then 0 else s.out_seq - (select count(*) from f) + 1 end)::bigint as first_out
from s;

-- name: Handover :many
-- T5: the body of T3; the run is queued under the next generation and attempt stays. No row = fenced, or sent again.
with f as materialized (
  select e.v, row_number() over (order by e.ord) as ord from jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
  where not exists (
    select from outbox o where o.dkey = any(array[e.v->>'dkey']) and (o.skey || '') = @skey::text and o.platform <> '' -- see AdmitBatch
  )
), s as (
  update sessions x set touched_at = now(), state = 'queued', owner = null, gen = gen + 1, queued_at = now(),
    out_seq = out_seq + (select count(*) from f),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + (select count(*) from f) else out_sent end
  where x.skey = @skey::text and x.gen = @gen and x.run_id = @run_id::uuid and x.owner = @owner::text and x.state = 'running'
  returning skey, run_id, session_id, gen, out_seq
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, @run_gen::bigint, (e.v->>'branch')::smallint, (e.v->>'n')::int, s.run_id, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(@messages::jsonb) as e(v) on conflict do nothing
), c as (
  insert into tool_calls (run_id, call_id, name, effect, state, idem_key, result)
  select s.run_id, e.v->>'call_id', e.v->>'name', e.v->>'effect', e.v->>'state', s.run_id || ':' || (e.v->>'call_id'),
    e.v->'result'
  from s, jsonb_array_elements(@tool_calls::jsonb) as e(v)
  on conflict (run_id, call_id) do update set state = excluded.state, result = excluded.result
), t as (
  update inbox i set run_id = e.run_id from (select s.skey, s.run_id, unnest(@taken::bigint[]) as seq from s) e
  where i.skey = any(array[e.skey]) and i.seq = e.seq
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - (select count(*) from f) + f.ord, f.v->>'dkey', s.run_id, f.v->>'platform', f.v->'target', f.v->'parts',
    f.v->>'state', now() + interval '3 s', (select r.traceparent from runs r where r.run_id = any(array[s.run_id]))
  from s, f
), r as (
  update runs set state = 'queued', owner = null, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
)
select s.skey, s.gen, (case when (select count(*) from f) = 0 then 0 else s.out_seq - (select count(*) from f) + 1 end)::bigint as first_out
from s;

-- name: Suspend :many
-- T7: the body of T3; the run waits, or is queued if a row that wakes has come that its worker has not seen. Compared with
-- wake_seq, never with last_seq. No row = fenced, or sent again.
with f as materialized (
  select e.v, row_number() over (order by e.ord) as ord from jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
  where not exists (
    select from outbox o where o.dkey = any(array[e.v->>'dkey']) and (o.skey || '') = @skey::text and o.platform <> '' -- see AdmitBatch
  )
), s as (
  update sessions x set touched_at = now(), owner = null, gen = gen + 1, wait_kind = @wait_kind::text,
    wake_at = case when wake_seq > @seen::bigint then null else @wake_at::timestamptz end,
    state = case when wake_seq > @seen::bigint then 'queued' else 'waiting' end,
    queued_at = case when wake_seq > @seen::bigint then now() else queued_at end,
    out_seq = out_seq + (select count(*) from f),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + (select count(*) from f) else out_sent end
  where x.skey = @skey::text and x.gen = @gen and x.run_id = @run_id::uuid and x.owner = @owner::text and x.state = 'running'
  returning skey, run_id, session_id, gen, state, out_seq
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, @run_gen::bigint, (e.v->>'branch')::smallint, (e.v->>'n')::int, s.run_id, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(@messages::jsonb) as e(v) on conflict do nothing
), c as (
  insert into tool_calls (run_id, call_id, name, effect, state, idem_key, result)
  select s.run_id, e.v->>'call_id', e.v->>'name', e.v->>'effect', e.v->>'state', s.run_id || ':' || (e.v->>'call_id'),
    e.v->'result'
  from s, jsonb_array_elements(@tool_calls::jsonb) as e(v)
  on conflict (run_id, call_id) do update set state = excluded.state, result = excluded.result
), t as (
  update inbox i set run_id = e.run_id from (select s.skey, s.run_id, unnest(@taken::bigint[]) as seq from s) e
  where i.skey = any(array[e.skey]) and i.seq = e.seq
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - (select count(*) from f) + f.ord, f.v->>'dkey', s.run_id, f.v->>'platform', f.v->'target', f.v->'parts',
    f.v->>'state', now() + interval '3 s', (select r.traceparent from runs r where r.run_id = any(array[s.run_id]))
  from s, f
), r as (
  update runs set state = s.state, owner = null, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
)
select s.skey, s.gen, s.state, (case when (select count(*) from f) = 0 then 0 else s.out_seq - (select count(*) from f) + 1 end)::bigint as first_out
from s;

-- name: FinishBatch :many
-- T4 as group commit, never cancelled. settled: all replies of the run are born sent. Missing in the result: stopped,
-- fenced or unknown: send Finish.
with l as materialized (
  select skey from sessions where skey = any(@skeys::text[]) order by skey for update
), k as (
  select unnest(@skeys::text[]) as skey, unnest(@gens::bigint[]) as gen, unnest(@run_ids::uuid[]) as run_id,
    unnest(@owners::text[]) as owner, unnest(@uptos::bigint[]) as upto, unnest(@next_run_ids::uuid[]) as next,
    unnest(@run_gens::bigint[]) as run_gen, unnest(@messages::jsonb[]) as msgs, unnest(@replies::jsonb[]) as outs,
    unnest(@settled::bool[]) as settled, unnest(@froms::bigint[]) as frm, unnest(@next_traceparents::text[]) as tp,
    unnest(@states::text[]) as state, unnest(@errors::text[]) as error, unnest(@usages::jsonb[]) as usage
), s as (
  update sessions x set done_seq = k.upto, owner = null, gen = x.gen + 1,
    out_seq = x.out_seq + jsonb_array_length(k.outs),
    out_sent = case when k.settled and x.out_sent = x.out_seq then x.out_seq + jsonb_array_length(k.outs) else x.out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now(),
    state = case when x.want_seq > k.upto then 'queued' else 'idle' end,
    run_id = case when x.want_seq > k.upto then k.next end,
    queued_at = case when x.want_seq > k.upto then now() else x.queued_at end
  from k
  where (select count(*) from l) >= 0 and x.skey = any(array[k.skey]) and x.gen = k.gen and x.run_id = k.run_id and x.owner = k.owner
    and x.state = 'running' and x.stop_run is distinct from x.run_id
  returning x.skey, x.gen, x.run_id, x.state, x.session_id, x.agent_id, x.out_seq, x.out_sent, k.run_id as old_run,
    k.owner as old_owner, k.upto, k.run_gen, k.msgs, k.outs, k.frm, k.tp, k.state as run_state, k.error, k.usage
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, s.run_gen, (e.v->>'branch')::smallint, (e.v->>'n')::int, s.old_run, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(s.msgs) as e(v) on conflict do nothing
), d as (
  update runs set state = s.run_state, owner = s.old_owner, from_seq = s.frm, to_seq = s.upto, error = nullif(s.error, ''),
    usage = s.usage, ended_at = now()
  from s where runs.run_id = any(array[s.old_run])
  returning s.skey, s.out_seq, s.outs, s.old_run, runs.traceparent
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select d.skey, d.out_seq - jsonb_array_length(d.outs) + e.ord, coalesce(e.v->>'dkey', d.old_run || ':' || e.ord),
    d.old_run, e.v->>'platform', e.v->'target', e.v->'parts', e.v->>'state', now() + interval '3 s', d.traceparent
  from d, jsonb_array_elements(d.outs) with ordinality as e(v, ord)
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen, s.tp from s where s.state = 'queued'
)
select skey, old_owner::text as old_owner, gen, run_id, out_seq, out_sent from s;

-- name: Finish :many
-- T4 and its cancelled form. No row: read FinishState; F still true = a stop came first, send the cancelled form.
with s as (
  update sessions x set done_seq = @upto::bigint, owner = null, gen = gen + 1,
    out_seq = out_seq + jsonb_array_length(@replies::jsonb),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + jsonb_array_length(@replies::jsonb) else out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now(),
    state = case when want_seq > @upto::bigint then 'queued' else 'idle' end,
    run_id = case when want_seq > @upto::bigint then @next_run_id::uuid end,
    queued_at = case when want_seq > @upto::bigint then now() else queued_at end
  where x.skey = @skey and x.gen = @gen and x.run_id = @run_id::uuid and x.owner = @owner::text and x.state = 'running'
    and (x.stop_run is distinct from x.run_id or @cancelled::bool)
  returning skey, gen, run_id, state, session_id, agent_id, out_seq, out_sent
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, @run_gen::bigint, (e.v->>'branch')::smallint, (e.v->>'n')::int, @run_id::uuid, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(@messages::jsonb) as e(v) on conflict do nothing
), d as (
  update runs set state = @state::text, owner = @owner::text, from_seq = @from_seq::bigint, to_seq = @upto::bigint,
    error = nullif(@error::text, ''), usage = @usage::jsonb, ended_at = now()
  from s where runs.run_id = @run_id::uuid returning runs.traceparent
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - jsonb_array_length(@replies::jsonb) + e.ord, coalesce(e.v->>'dkey', @run_id::uuid || ':' || e.ord),
    @run_id::uuid, e.v->>'platform', e.v->'target', e.v->'parts', e.v->>'state', now() + interval '3 s', d.traceparent
  from s, d, jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
), x as ( -- calls still open at a stop: unsafe ones may have happened
  update tool_calls set state = case when effect = 'unsafe' then 'unknown' else 'failed' end
  from s where @cancelled::bool and tool_calls.run_id = @run_id::uuid and tool_calls.state = 'intent'
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen, @next_traceparent::text
  from s where s.state = 'queued'
)
select gen, run_id, out_seq, out_sent from s;

-- name: StopQueued :many
-- The cancelled form for a stopped run that nobody has claimed. No row = claimed meanwhile, or sent again. The run keeps
-- no owner, so that no worker takes it for its own commit.
with s as (
  update sessions x set done_seq = @upto::bigint, gen = gen + 1,
    out_seq = out_seq + jsonb_array_length(@replies::jsonb),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + jsonb_array_length(@replies::jsonb) else out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now(),
    state = case when want_seq > @upto::bigint then 'queued' else 'idle' end,
    run_id = case when want_seq > @upto::bigint then @next_run_id::uuid end,
    queued_at = case when want_seq > @upto::bigint then now() else queued_at end
  where x.skey = @skey and x.gen = @gen and x.run_id = @run_id::uuid and x.state = 'queued' and x.stop_run = x.run_id
  returning skey, gen, run_id, state, session_id, agent_id, out_seq, out_sent
), d as (
  update runs set state = 'cancelled', owner = null, from_seq = @from_seq::bigint, to_seq = @upto::bigint, ended_at = now()
  from s where runs.run_id = @run_id::uuid returning runs.traceparent
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - jsonb_array_length(@replies::jsonb) + e.ord, coalesce(e.v->>'dkey', @run_id::uuid || ':' || e.ord),
    @run_id::uuid, e.v->>'platform', e.v->'target', e.v->'parts', e.v->>'state', now() + interval '3 s', d.traceparent
  from s, d, jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
), x as ( -- see Finish; a run that was handed over or taken over has calls
  update tool_calls set state = case when effect = 'unsafe' then 'unknown' else 'failed' end
  from s where tool_calls.run_id = @run_id::uuid and tool_calls.state = 'intent'
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen, @next_traceparent::text
  from s where s.state = 'queued'
)
select gen, run_id, out_seq, out_sent from s;

-- name: FinishState :one
-- Why a Finish wrote nothing: held = F is still true, committed = an earlier try of unknown outcome had committed.
select
  exists (select from sessions s where s.skey = @skey and s.gen = @gen and s.run_id = @run_id::uuid
    and s.owner = @owner::text and s.state = 'running')::bool as held,
  exists (select from runs r where r.run_id = @run_id::uuid and r.skey = @skey and r.owner = @owner::text
    and r.state = @state::text)::bool as committed;

-- name: Heartbeat :execrows
insert into workers (worker_id, boot, heartbeat_at, slots, used, draining)
values (@worker_id, @boot, now(), @slots, @used, @draining)
on conflict (worker_id) do update set boot = excluded.boot, heartbeat_at = excluded.heartbeat_at, slots = excluded.slots,
  used = excluded.used, draining = excluded.draining;
