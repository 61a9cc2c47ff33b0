-- What a process left behind when it died. Sweeper queries spell the predicates of the partial indexes.

-- name: Takeover :many
-- T6. gen and owner are as the sweeper read them: only a running row has an owner. No row = the session has moved on.
with s as (
  update sessions x set gen = gen + 1, owner = null, state = 'queued',
    queued_at = now() + interval '1 microsecond' * @delay_us::bigint, attempt = attempt + 1,
    stall = case when @stall_key::text = '' then stall when stall_key = @stall_key::text then stall + 1 else 1 end,
    stall_key = coalesce(nullif(@stall_key::text, ''), stall_key)
  where x.skey = @skey and x.gen = @gen and x.owner = @owner::text and x.state = 'running'
  returning skey, gen, run_id, attempt, stall
), r as (
  update runs set state = 'queued', owner = null, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
)
select gen, run_id, attempt, stall from s;

-- name: GiveUp :many
-- T4 with run state dead, an apology and a dead letter, for a run with or without an owner. No row = the session has moved
-- on, or sent again.
with s as (
  update sessions x set done_seq = @upto::bigint, owner = null, gen = gen + 1,
    out_seq = out_seq + jsonb_array_length(@replies::jsonb),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + jsonb_array_length(@replies::jsonb) else out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now(),
    state = case when want_seq > @upto::bigint then 'queued' else 'idle' end,
    run_id = case when want_seq > @upto::bigint then @next_run_id::uuid end,
    queued_at = case when want_seq > @upto::bigint then now() else queued_at end
  where x.skey = @skey and x.gen = @gen and x.run_id = @run_id::uuid and x.owner is not distinct from nullif(@owner::text, '')
    and x.state in ('running', 'queued', 'waiting')
  returning skey, gen, run_id, state, session_id, agent_id, out_seq, out_sent
), m as (
  insert into messages (skey, session_id, run_gen, branch, n, run_id, role, content, inbox_seq)
  select s.skey, s.session_id, @run_gen::bigint, (e.v->>'branch')::smallint, (e.v->>'n')::int, @run_id::uuid, e.v->>'role',
    e.v->'content', (e.v->>'inbox_seq')::bigint
  from s, jsonb_array_elements(@messages::jsonb) as e(v) on conflict do nothing
), d as (
  update runs set state = 'dead', owner = null, from_seq = @from_seq::bigint, to_seq = @upto::bigint,
    error = nullif(@error::text, ''), ended_at = now()
  from s where runs.run_id = @run_id::uuid returning runs.traceparent
), o as (
  insert into outbox (skey, out_seq, dkey, run_id, platform, target, parts, state, next_at, traceparent)
  select s.skey, s.out_seq - jsonb_array_length(@replies::jsonb) + e.ord, coalesce(e.v->>'dkey', @run_id::uuid || ':' || e.ord),
    @run_id::uuid, e.v->>'platform', e.v->'target', e.v->'parts', e.v->>'state', now() + interval '3 s', d.traceparent
  from s, d, jsonb_array_elements(@replies::jsonb) with ordinality as e(v, ord)
), c as (
  insert into tool_calls (run_id, call_id, name, effect, state, idem_key, result)
  select @run_id::uuid, e.v->>'call_id', e.v->>'name', e.v->>'effect', e.v->>'state', @run_id::uuid || ':' || (e.v->>'call_id'),
    e.v->'result'
  from s, jsonb_array_elements(@tool_calls::jsonb) as e(v)
  on conflict (run_id, call_id) do update set state = excluded.state, result = excluded.result
), x as ( -- see Finish; those that have a result now are not open
  update tool_calls set state = case when effect = 'unsafe' then 'unknown' else 'failed' end
  from s where tool_calls.run_id = @run_id::uuid and tool_calls.state = 'intent'
    and not exists (select from jsonb_array_elements(@tool_calls::jsonb) as e(v) where e.v->>'call_id' = tool_calls.call_id)
), l as (
  insert into dead_letters (id, kind, ref, reason, payload)
  select @letter_id::uuid, @letter_kind::text, @letter_ref::text, @letter_reason::text, @letter_payload::jsonb from s
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen, @next_traceparent::text
  from s where s.state = 'queued'
)
select gen, run_id, out_seq, out_sent from s;


-- name: Reclaim :many
-- Leases that Redis forgot: the next generation and a new owner for runs in hand. Missing = fenced.
with l as materialized (
  select skey from sessions where skey = any(@skeys::text[]) order by skey for update
), k as (
  select unnest(@skeys::text[]) as skey, unnest(@gens::bigint[]) as gen, unnest(@run_ids::uuid[]) as run_id,
    unnest(@owners::text[]) as owner, unnest(@fresh::text[]) as fresh
), s as (
  update sessions x set gen = x.gen + 1, owner = k.fresh, touched_at = now() from k
  where (select count(*) from l) >= 0 and x.skey = any(array[k.skey]) and x.gen = k.gen and x.run_id = k.run_id and x.owner = k.owner
    and x.state = 'running'
  returning x.skey, x.gen, x.run_id, x.owner
), r as (
  update runs set owner = s.owner, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
)
select skey, gen, owner from s;

-- name: RunningRuns :many
-- Sweeper (b), a page in the order of skey. An owner is <worker id>/<nonce>.
select s.skey, s.tenant, s.run_class, s.gen, s.run_id, s.owner, s.attempt, s.stall, s.stall_key,
  coalesce((select (extract(epoch from now() - w.heartbeat_at) * 1000000)::bigint from workers w
    where w.worker_id = split_part(s.owner, '/', 1)), -1)::bigint as silent_us,
  (extract(epoch from now() - s.touched_at) * 1000000)::bigint as untouched_us
from sessions s
where s.part = any(@parts::smallint[]) and (s.state || '') in ('queued', 'running') and s.state = 'running'
  and (s.skey || '') > @after::text -- the order of the primary key is of no use here: it has all sessions
order by s.skey || '' limit @max_rows::int;

-- name: RunToolCalls :many
select call_id, name, effect, state, result from tool_calls where run_id = @run_id order by created_at, call_id;

-- name: StaleStops :many
-- Sweeper (f). A stop queues a run that waits; one that its worker has seen and then suspended nevertheless still waits.
select a.skey, a.gen, a.run_id, a.state, a.owner from (
  select s.skey, s.gen, s.run_id, s.state, s.owner, s.stop_at from sessions s
  where s.part = any(@parts::smallint[]) and (s.state || '') in ('queued', 'running') and s.stop_run = s.run_id
    and s.stop_at <= now() - interval '1 microsecond' * @age_us::bigint
  union all
  select w.skey, w.gen, w.run_id, w.state, w.owner, w.stop_at from sessions w
  where (w.part + 0) = any(@parts::smallint[]) -- all sessions of the partitions are more than all that wait
    and w.state = 'waiting' and w.stop_run = w.run_id
    and w.stop_at <= now() - interval '1 microsecond' * @age_us::bigint
) a
order by a.stop_at limit @max_rows::int;

-- name: EndStopped :many
-- Sweeper (f): the cancelled form whoever owns the run. No row = ended meanwhile. The run keeps no owner.
with s as (
  update sessions x set done_seq = @upto::bigint, owner = null, gen = gen + 1,
    out_seq = out_seq + jsonb_array_length(@replies::jsonb),
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + jsonb_array_length(@replies::jsonb) else out_sent end,
    attempt = 0, stall = 0, stop_run = null, stop_at = null, wait_kind = null, wake_at = null, touched_at = now(),
    state = case when want_seq > @upto::bigint then 'queued' else 'idle' end,
    run_id = case when want_seq > @upto::bigint then @next_run_id::uuid end,
    queued_at = case when want_seq > @upto::bigint then now() else queued_at end
  where x.skey = @skey and x.gen = @gen and x.run_id = @run_id::uuid and x.state <> 'paused' and x.stop_run = x.run_id
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


-- name: WakeDue :many
-- Sweeper (c): sessions whose time has come. One that collects has no run and gets one of fresh.
with d as materialized (
  select skey, row_number() over () as n from (
    select skey from sessions where part = any(@parts::smallint[]) and state = 'waiting' and wake_at <= now()
    order by wake_at limit cardinality(@fresh::uuid[]) for update skip locked
  ) a
), s as (
  update sessions x set gen = gen + 1, state = 'queued', wake_at = null, wait_kind = null, queued_at = now(),
    run_id = coalesce(x.run_id, (@fresh::uuid[])[d.n])
  from d where x.skey = any(array[d.skey]) and x.state = 'waiting'
  returning x.skey, x.tenant, x.gen, x.run_id, x.run_class, x.session_id, x.agent_id, (x.run_id = (@fresh::uuid[])[d.n]) as fresh, x.done_seq
), r as (
  update runs set state = 'queued', last_gen = s.gen from s where not s.fresh and runs.run_id = any(array[s.run_id])
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen, traceparent)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen,
    (select i.traceparent from inbox i where i.skey = any(array[s.skey]) and i.seq > s.done_seq order by i.seq limit 1)
  from s where s.fresh
)
select skey, tenant, gen, run_id, run_class from s;

-- name: RunningByTenant :many
select tenant, count(*) as running from sessions where (state || '') in ('queued', 'running') and state = 'running' group by tenant;

-- name: SettleGaps :many
-- Sweeper (e): positions move over rows that are settled. A mark that comes meanwhile makes its own. The session may have
-- a row that is newer than this statement's snapshot: out_seq counts it, so that only rows that are seen decide.
with d as materialized (
  select s.skey, s.out_sent from sessions s
  where s.part = any(@parts::smallint[]) and s.out_sent < s.out_seq and exists (
    select from outbox o where o.skey = any(array[s.skey]) and o.out_seq = any(array[s.out_sent + 1]) and o.state <> 'pending')
  order by s.skey || '' limit @max_rows::int for update of s skip locked
), u as (
  update sessions x set out_sent = d.upto from (
    select d.skey, coalesce(min(o.out_seq) filter (where o.state = 'pending') - 1, max(o.out_seq)) as upto
    from d join outbox o on o.skey = any(array[d.skey]) and o.out_seq > d.out_sent group by d.skey
  ) d where x.skey = any(array[d.skey]) returning x.skey, x.out_sent
)
select u.skey, (u.out_sent + 1)::bigint as out_seq, o.platform, o.attempts, (o.skey is not null)::bool as found
from u left join outbox o on o.skey = any(array[u.skey]) and o.out_seq = u.out_sent + 1;
