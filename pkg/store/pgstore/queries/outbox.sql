-- T8: the claim in the row decides who sends.

-- name: ClaimDeliveries :many
-- Read and claim are one statement, so that the common case has no extra round trip. sents = the last row of the session
-- that this process has sent but not yet marked (0 = none). Missing = not next, settled, or another one is sending.
-- Never waits for a lock. An expired claim counts itself in maybe.
with l as materialized (
  select o.skey, o.out_seq, s.tenant
  from (select unnest(@skeys::text[]) as skey, unnest(@out_seqs::bigint[]) as out_seq, unnest(@sents::bigint[]) as sent) k
  join sessions s on s.skey = any(array[k.skey])
  join outbox o on o.skey = any(array[k.skey]) and o.out_seq = k.out_seq
  where o.state = 'pending' and (o.until is null or o.until <= now()) and k.out_seq - 1 = greatest(s.out_sent, k.sent)
  for update of o skip locked
)
update outbox o set sender = @sender::text, until = now() + interval '60 s', attempts = o.attempts + 1,
  maybe = o.maybe + (o.until is not null)::int
from l where o.skey = any(array[l.skey]) and o.out_seq = l.out_seq and o.state = 'pending'
  and (o.until is null or o.until <= now())
returning o.skey, o.out_seq, o.dkey, o.run_id, o.platform, o.target, o.parts, o.attempts, o.maybe, o.plan, o.sent_parts,
  o.platform_ids, o.created_at, o.traceparent, l.tenant;

-- name: RecordPart :execrows
-- After each part, and before the first for the plan. No row = the claim is lost. Also extends the claim.
update outbox set sent_parts = @sent_parts, platform_ids = @platform_ids, plan = coalesce(plan, @plan::jsonb),
  until = now() + interval '60 s'
where skey = @skey and out_seq = @out_seq and sender = @sender::text and state = 'pending';

-- name: RetryDelivery :execrows
update outbox set sender = null, until = null, next_at = now() + interval '1 microsecond' * @after_us::bigint,
  maybe = maybe + (@maybe::bool)::int
where skey = @skey and out_seq = @out_seq and sender = @sender::text and state = 'pending';

-- name: MarkDeliveries :many
-- No test of sender: what was sent was sent. Several rows of one session are allowed, without a gap. Returned out_seq >
-- out_sent: the next row is claimed in a new statement (this one may not see it).
with l as materialized (
  select skey from sessions where skey = any(@skeys::text[]) order by skey for update
), k as (
  select unnest(@skeys::text[]) as skey, unnest(@out_seqs::bigint[]) as out_seq, unnest(@states::text[]) as state,
    unnest(@platform_ids::jsonb[]) as ids, unnest(@reasons::text[]) as reason, unnest(@letter_ids::uuid[]) as letter
), o as (
  update outbox o set state = k.state, platform_ids = k.ids,
    sent_parts = greatest(o.sent_parts, coalesce(jsonb_array_length(k.ids), 0)), sender = null, until = null
  from k
  where (select count(*) from l) >= 0 and o.skey = any(array[k.skey]) and o.out_seq = k.out_seq and o.state = 'pending'
  returning o.skey, o.out_seq, o.dkey, o.platform, o.target, o.parts, k.state, k.reason, k.letter
), b as (
  insert into dead_letters (id, kind, ref, reason, payload)
  select letter, 'out', skey || '/' || out_seq, reason, jsonb_build_object('skey', skey, 'out_seq', out_seq, 'dkey', dkey,
    'platform', platform, 'target', target, 'parts', parts)
  from o where state = 'dead'
), g as (
  select skey, min(out_seq) as lo, max(out_seq) as hi, count(*) as n from o group by skey
)
update sessions x set out_sent = g.hi from g
where x.skey = any(array[g.skey]) and x.out_sent = g.lo - 1 and g.hi - g.lo + 1 = g.n
returning x.skey, x.out_seq, x.out_sent;

-- name: NotePreview :exec
insert into previews (skey, run_id, platform_id, egress) values (@skey, @run_id, @platform_id, @egress)
on conflict (skey, run_id, platform_id) do update set egress = excluded.egress;

-- name: Previews :many
select platform_id from previews where skey = @skey and run_id = @run_id order by created_at, platform_id;

-- name: ForgetPreviews :exec
delete from previews where skey = @skey and run_id = @run_id;
