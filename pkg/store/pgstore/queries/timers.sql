-- Timers send messages. Their partition is that of their session.

-- name: PutTimer :execrows
-- No row = the id belongs to another session.
insert into timers as t (id, skey, part, tenant, spec, body, next_at) values (@id, @skey, @part, @tenant, @spec, @body, @next_at)
on conflict (id) do update set spec = excluded.spec, body = excluded.body, next_at = excluded.next_at, tenant = excluded.tenant
where t.skey = excluded.skey;

-- name: Timers :many
select id, skey, tenant, spec, body, next_at from timers where part = @part and skey = @skey order by next_at, id;

-- name: DeleteTimer :execrows
delete from timers where id = @id and skey = @skey;

-- name: DueTimers :many
-- Sweeper (g).
select id, skey, tenant, spec, body, next_at from timers
where part = any(@parts::smallint[]) and next_at <= now() order by next_at, id limit @max_rows::int;

-- name: MoveTimer :execrows
update timers set next_at = @next_at where id = @id and next_at = @old_at;

-- name: EndTimer :execrows
delete from timers where id = @id and next_at = @old_at;
