-- Retention, in small batches, the oldest first. What a dead letter tells of that nobody has replayed is kept. Rows that
-- somebody works on are left for the next time. What hangs on another table is a subquery for each row: a join could read
-- that table as a whole.

-- name: PurgeInbox :execrows
-- The items of a row go with it.
with kept as materialized (
  select r.run_id, r.skey, r.from_seq, r.to_seq from dead_letters d
  join runs r on r.run_id = any(array[case when d.ref ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then d.ref::uuid end])
  where d.kind = 'run' and d.replays = 0
), d as materialized (
  select b.skey, b.seq from inbox b
  where b.created_at < now() - interval '1 microsecond' * @age_us::bigint
    and b.seq <= (select s.done_seq from sessions s where s.skey = b.skey)
    and not exists (select from kept k where k.skey = b.skey and (k.run_id = b.run_id or b.seq between k.from_seq and k.to_seq))
  order by b.created_at limit @max_rows::int for update of b skip locked
), t as (
  delete from inbox_items t using d where t.skey = any(array[d.skey]) and t.seq = d.seq
)
delete from inbox i using d where i.skey = any(array[d.skey]) and i.seq = d.seq;

-- name: PurgeOutbox :execrows
with d as materialized (
  select b.skey, b.out_seq from outbox b
  where b.created_at < now() - interval '1 microsecond' * @age_us::bigint
    and b.out_seq <= (select s.out_sent from sessions s where s.skey = b.skey)
    and not exists (
      select from dead_letters l where l.ref = any(array[(b.skey || '/' || b.out_seq) collate "default"]) and l.replays = 0 and l.kind = 'out'
    )
  order by b.created_at limit @max_rows::int for update of b skip locked
)
delete from outbox o using d where o.skey = any(array[d.skey]) and o.out_seq = d.out_seq;

-- name: PurgeRuns :execrows
-- A run is as old as its end; its creation, which is older, is in the index.
with d as materialized (
  select b.run_id from runs b
  where b.created_at < now() - interval '1 microsecond' * @age_us::bigint
    and b.ended_at < now() - interval '1 microsecond' * @age_us::bigint and b.state in ('done', 'cancelled', 'failed', 'dead')
    and not exists (
      select from dead_letters l where l.ref = any(array[b.run_id::text]) and l.replays = 0 and l.kind = 'run'
    )
    and not exists (select from outbox o where o.run_id = any(array[b.run_id]) and o.state = 'pending')
  order by b.created_at limit @max_rows::int for update of b skip locked
), t as (
  delete from tool_calls c using d where c.run_id = any(array[d.run_id])
)
delete from runs r using d where r.run_id = any(array[d.run_id]);

-- name: PurgeLetters :execrows
delete from dead_letters l using (
  select id from dead_letters where replays > 0 and replayed_at < now() - interval '1 microsecond' * @age_us::bigint
  limit @max_rows::int for update skip locked
) d where l.id = d.id;
