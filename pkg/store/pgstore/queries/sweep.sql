-- What was left behind. The predicates (state || '') are those of the partial indexes.

-- name: DueDeliveries :many
-- Sweeper (d): rows that nobody sends, to be rung after the commit. It counts nothing, ClaimDeliveries does.
update outbox o set next_at = now() + interval '90 s' from (
  select skey, out_seq from outbox
  where (state || '') = 'pending' and next_at <= now() and (until is null or until <= now())
  order by next_at limit @max_rows::int for update skip locked
) d
where o.skey = any(array[d.skey]) and o.out_seq = d.out_seq
returning o.skey, o.out_seq, o.platform, o.attempts;

-- name: QueuedRuns :many
-- Sweeper (a), partition by partition in the order of the array: the nested loop that LATERAL with LIMIT forces stops
-- reading as soon as the page is full, which a sort over a backlog would not.
select q.skey, q.tenant, q.part, q.gen, q.run_id, q.run_class, q.queued_at,
  (extract(epoch from now() - q.queued_at) * 1000000)::bigint as age_us
from (select unnest(@parts::smallint[]) as part) p
cross join lateral (
  select s.skey, s.tenant, s.part, s.gen, s.run_id, s.run_class, s.queued_at from sessions s
  where s.part = p.part and (s.state || '') in ('queued', 'running') and s.state = 'queued'
    and s.queued_at <= now() - interval '1 microsecond' * @age_us::bigint
    and s.queued_at >= case when p.part = @after_part::smallint then @after_at::timestamptz else '-infinity' end
    and (p.part <> @after_part::smallint or (s.queued_at, s.skey) > (@after_at::timestamptz, @after_skey::text))
  order by s.queued_at, s.skey limit @max_rows::int
) q
limit @max_rows::int;

-- name: Backlog :one
select count(*) filter (where state = 'running') as running, count(*) filter (where state = 'queued') as queued
from sessions where part = any(@parts::smallint[]) and (state || '') in ('queued', 'running');
