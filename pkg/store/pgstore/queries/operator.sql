-- What people on call do by hand.

-- name: Pause :many
-- The current run is fenced off and kept, whatever it was doing. No row = paused already, or no such session.
with s as (
  update sessions x set gen = gen + 1, owner = null, state = 'paused', touched_at = now()
  where x.skey = @skey and x.state <> 'paused'
  returning skey, gen, run_id
), r as (
  update runs set state = 'waiting', owner = null, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
)
select skey, gen from s;

-- name: Unpause :many
-- On with the run that was interrupted, or with run next for what waits. No row = not paused.
with s as (
  update sessions x set gen = gen + 1, touched_at = now(), wake_at = null, wait_kind = null,
    run_id = case when run_id is not null then run_id when want_seq > done_seq then @next::uuid end,
    state = case when run_id is not null or want_seq > done_seq then 'queued' else 'idle' end,
    queued_at = case when run_id is not null or want_seq > done_seq then now() else queued_at end
  where x.skey = @skey and x.state = 'paused'
  returning skey, gen, run_id, state, session_id, agent_id, run_class
), r as (
  update runs set state = 'queued', owner = null, last_gen = s.gen from s where runs.run_id = any(array[s.run_id])
), n as (
  insert into runs (run_id, skey, session_id, agent_id, state, first_gen, last_gen)
  select s.run_id, s.skey, s.session_id, s.agent_id, 'queued', s.gen, s.gen from s where s.run_id = @next::uuid and s.state = 'queued'
)
select gen, run_id, state, run_class from s;

-- name: FindSessions :many
select skey, tenant, session_key, session_id, part, agent_id, run_class, state, gen, run_id, owner, last_seq, done_seq,
  want_seq, wake_seq, ctl_seq, stop_run, out_seq, out_sent, attempt, stall, queued_at, touched_at, stall_key, wait_kind, wake_at
from sessions
where skey > @after::text and (@tenant::text = '' or tenant = @tenant::text) and (@state::text = '' or state = @state::text)
order by skey limit @max_rows::int;

-- name: Workers :many
select worker_id, boot, slots, used, draining, (extract(epoch from now() - heartbeat_at) * 1000000)::bigint as silent_us
from workers where heartbeat_at > now() - interval '1 day' order by worker_id;

-- name: DeadLetters :many
select id, kind, ref, reason, created_at, replays, replayed_at from dead_letters
where id < @before::uuid and (@kind::text = '' or kind = @kind::text) and (not @open::bool or replays = 0)
order by id desc limit @max_rows::int;

-- name: DeadLetter :one
select id, kind, ref, reason, payload, created_at, replays, replayed_at from dead_letters where id = @id;

-- name: CountReplay :one
update dead_letters set replays = replays + 1, replayed_at = now() where id = @id
returning id, kind, ref, reason, payload, created_at, replays, replayed_at;

-- name: Redeliver :many
-- A reply behind the others, under its dkey. It follows LockSessions, so that it sees what an earlier try has written.
-- No row = it is there already, or no such session.
with s as (
  update sessions x set out_seq = out_seq + 1,
    out_sent = case when @settled::bool and out_sent = out_seq then out_seq + 1 else out_sent end
  where x.skey = @skey::text and not exists (select from outbox o where o.dkey = @dkey::text and (o.skey || '') = @skey::text)
  returning skey, out_seq
), o as (
  insert into outbox (skey, out_seq, dkey, platform, target, parts, state, next_at)
  select s.skey, s.out_seq, @dkey::text, @reply::jsonb->>'platform', @reply::jsonb->'target', @reply::jsonb->'parts', @reply::jsonb->>'state',
    now() + interval '3 s' from s
)
select out_seq from s;

-- name: FindReply :one
select out_seq, platform, attempts from outbox where dkey = @dkey::text and (skey || '') = @skey::text;
