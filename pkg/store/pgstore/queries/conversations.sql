-- Conversations. The current one of a session may have no row yet: it gets one when it ends.

-- name: Conversations :many
-- Newest first by their start.
select a.session_id, a.skey, a.parent, a.parent_upto, a.started_at, a.ended_at, s.tenant
from (
  select c.session_id, c.skey, c.parent, c.parent_upto, c.started_at, c.ended_at from conversations c where c.skey = @skey::text
  union all
  select x.session_id, x.skey, null, null, x.created_at, null from sessions x where x.skey = @skey::text
    and not exists (select from conversations c where c.session_id = x.session_id)
) a join sessions s on s.skey = a.skey
order by a.started_at desc, a.session_id desc limit @max_rows::int;

-- name: Conversation :one
select c.session_id, c.skey, c.parent, c.parent_upto, c.started_at, c.ended_at, s.tenant
from conversations c join sessions s on s.skey = c.skey where c.session_id = @session_id;

-- name: CurrentConversation :one
-- One without a row is the current one of a session, and that session's first. Its messages name the session.
select s.session_id, s.skey, s.created_at, s.tenant from sessions s where s.session_id = @session_id limit 1;

-- name: ConversationRuns :one
-- last_run_gen has to survive the retention of runs: messages stay.
select greatest(
    coalesce((select max(r.first_gen) from runs r where r.skey = @skey::text and r.session_id = @session_id::uuid
      and r.state in ('done', 'cancelled', 'failed', 'dead')), 0),
    coalesce((select max(m.run_gen) from messages m where m.skey = @skey::text and m.session_id = @session_id::uuid
      and not exists (select from runs r where r.run_id = m.run_id and r.state not in ('done', 'cancelled', 'failed', 'dead'))), 0)
  )::bigint as last_run_gen,
  (select count(*) from runs r where r.skey = @skey::text and r.session_id = @session_id::uuid
    and r.state in ('done', 'cancelled', 'failed', 'dead')) as runs;

-- name: HistoryBetween :many
-- The newest messages of runs behind one and up to another, newest first; see History for the array.
select run_gen, branch, n, run_id, role, content, inbox_seq from messages
where skey = @skey and session_id = @session_id and branch = any(array[0::smallint]) and run_gen > @after::bigint and run_gen <= @upto::bigint
order by run_gen desc, n desc limit @max_rows::int;
