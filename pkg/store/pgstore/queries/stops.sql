-- name: Stops :many
-- The backstop of a worker for runs inside a long call, one statement for all of them. Runs that are missing are fenced.
select s.skey, s.gen, s.run_id, s.owner, s.stop_run
from (select unnest(@skeys::text[]) as skey, unnest(@gens::bigint[]) as gen, unnest(@run_ids::uuid[]) as run_id,
    unnest(@owners::text[]) as owner) k
join sessions s on s.skey = any(array[k.skey])
where s.gen = k.gen and s.run_id = k.run_id and s.owner = k.owner and s.state = 'running';
