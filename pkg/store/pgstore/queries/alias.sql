-- Aliases have one step: a canonical id is never an alias.

-- name: ResolveAliases :many
-- In the order of the arrays; an id without an alias stands for itself.
select coalesce((
    select a.canonical from aliases a
    where a.tenant = any(array[k.tenant]) and a.platform = k.platform and a.account = k.account and a.id = k.id
  ), k.id)::text as canonical
from (
  select unnest(@tenants::text[]) as tenant, unnest(@platforms::text[]) as platform, unnest(@accounts::text[]) as account,
    unnest(@ids::text[]) as id, generate_subscripts(@ids::text[], 1) as ord
) k
order by k.ord;

-- name: LockAliases :exec
-- The first statement of a pipeline that learns: without it, one that learns a of b and one that learns b of a see
-- neither, and both are written. It is no part of LearnAlias, whose snapshot has to be taken after the lock.
select pg_advisory_xact_lock(hashtextextended(jsonb_build_array('aliases', @tenant::text, @platform::text, @account::text)::text, 0));

-- name: LearnAlias :exec
insert into aliases (tenant, platform, account, id, canonical)
select @tenant::text, @platform::text, @account::text, @id::text, k.canonical
from (
  select coalesce((
    select a.canonical from aliases a
    where a.tenant = @tenant::text and a.platform = @platform::text and a.account = @account::text and a.id = @older::text
  ), @older::text) as canonical
) k
where k.canonical <> @id::text and not exists (
  select from aliases a
  where a.canonical = @id::text and (a.tenant || '') = @tenant::text and a.platform = @platform::text and a.account = @account::text
)
on conflict (tenant, platform, account, id) do nothing;
