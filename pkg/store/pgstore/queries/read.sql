-- Reads that are not part of a run; they are not fenced.

-- name: GetSession :one
select skey, tenant, session_key, session_id, part, agent_id, run_class, state, gen, run_id, owner, last_seq, done_seq,
  want_seq, wake_seq, ctl_seq, stop_run, out_seq, out_sent, attempt, stall, queued_at, touched_at, stall_key, wait_kind, wake_at
from sessions where skey = @skey;

-- name: GetRun :one
select sqlc.embed(r) from runs r where r.run_id = @run_id;

-- name: RunMessages :many
select m.run_gen, m.branch, m.n, m.run_id, m.role, m.content, m.inbox_seq
from runs r
join messages m on m.skey = any(array[r.skey]) and m.run_gen = r.first_gen and m.run_id = r.run_id
where r.run_id = @run_id order by m.branch, m.n;

-- name: RunReplies :many
select out_seq, dkey, platform, state, parts from outbox where run_id = @run_id::uuid order by out_seq;

-- name: History :many
-- The array keeps the primary key, which has the rows of all conversations of the session, from offering the order.
select run_gen, branch, n, run_id, role, content, inbox_seq from messages
where skey = @skey and session_id = @session_id and branch = any(array[0::smallint])
order by run_gen desc, n desc limit @max_rows::int;

-- name: GetSubmission :one
-- The run is, in this order: the one that took the row out of its place; the final run whose range holds it (ranges
-- rise with first_gen, so the newest run that does not begin behind the row decides); the current run once a message of
-- it names the row. Keys of notices begin with the msg_uid, as those of replies with the run_id.
select i.seq, i.kind, i.body, coalesce(
    i.run_id,
    (select c.run_id from (
      select r.run_id, r.to_seq from runs r where r.skey = i.skey and r.from_seq <= i.seq order by r.first_gen desc limit 1
    ) c where c.to_seq >= i.seq),
    (select r.run_id from runs r
      where r.run_id = (select s.run_id from sessions s where s.skey = i.skey) and exists (
        select from messages m where m.skey = any(array[r.skey]) and m.run_gen = r.first_gen
          and m.run_id = any(array[r.run_id]) and m.inbox_seq = i.seq
      ))
  ) as run_id,
  (select o.parts from outbox o where o.dkey >= i.msg_uid || ':' and o.dkey < i.msg_uid || ';'
    and (o.skey || '') = i.skey and o.run_id is null order by o.out_seq limit 1) as notice
from inbox i where i.msg_uid = @msg_uid and (i.skey || '') = @skey::text;

-- name: IsSuperseded :one
select exists (
  select from runs r join messages m on m.skey = any(array[r.skey]) and m.run_gen = r.first_gen and m.run_id = r.run_id
  where r.run_id = @run_id and m.inbox_seq = @seq and m.role = 'superseded'
)::bool as superseded;

-- name: InboxAfter :many
select seq, msg_uid, kind, body, grp, run_id, traceparent from inbox where skey = @skey and seq > @seq order by seq;

-- name: FindInbox :one
-- A row's own uid comes before the items of others.
select i.seq, i.msg_uid, i.kind, i.body, i.grp, i.run_id, i.traceparent from inbox i
where i.skey = @skey::text and i.seq = coalesce(
  (select o.seq from inbox o where o.msg_uid = @uid::text and (o.skey || '') = @skey::text),
  (select t.seq from inbox_items t where t.skey = @skey::text and t.item_uid = @uid::text)
);

-- name: KnownItems :many
-- In the order of the array. EXISTS could be answered from a hash of all rows; these are looked up.
select u.uid::text as uid from (
  select unnest(@uids::text[]) as uid, generate_subscripts(@uids::text[], 1) as ord
) u
where coalesce(
  (select i.seq from inbox i where i.msg_uid = u.uid and (i.skey || '') = @skey::text),
  (select t.seq from inbox_items t where t.skey = @skey::text and t.item_uid = u.uid)
) is not null
order by u.ord;
