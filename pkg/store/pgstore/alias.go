package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore/internal/dbgen"
)

// ResolveAliases implements store.Aliases.
func (s *Store) ResolveAliases(ctx context.Context, addresses []store.Address) ([]string, error) {
	ids, err := bounded(ctx, s.queries.ResolveAliases, resolveAliasesParams(addresses))
	return ids, wrap("resolve aliases", err)
}

// LearnAlias implements store.Aliases. The canonical id is read by a statement of its own, whoever has stored it.
func (s *Store) LearnAlias(ctx context.Context, a store.Address, older string) (string, error) {
	var canonical string
	err := send(ctx, s.sync, "learn alias", func(b *pgx.Batch) {
		b.Queue(dbgen.LockAliases, spread(dbgen.LockAliasesParams{Tenant: a.Tenant, Platform: a.Platform, Account: a.Account})...)
		b.Queue(dbgen.LearnAlias, spread(dbgen.LearnAliasParams{
			Tenant: a.Tenant, Platform: a.Platform, Account: a.Account, ID: a.ID, Older: older,
		})...)
		b.Queue(dbgen.ResolveAliases, spread(resolveAliasesParams([]store.Address{a}))...).QueryRow(func(row pgx.Row) error {
			return row.Scan(&canonical)
		})
	})
	if err != nil {
		return "", err
	}
	return canonical, nil
}

func resolveAliasesParams(addresses []store.Address) dbgen.ResolveAliasesParams {
	return dbgen.ResolveAliasesParams{
		Tenants:   column(addresses, func(a *store.Address) string { return a.Tenant }),
		Platforms: column(addresses, func(a *store.Address) string { return a.Platform }),
		Accounts:  column(addresses, func(a *store.Address) string { return a.Account }),
		Ids:       column(addresses, func(a *store.Address) string { return a.ID }),
	}
}
