package memstore

import (
	"context"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// aliases maps every alias to its canonical id, which is never an alias itself: no chain has more than one step.
type aliases struct {
	canonical map[store.Address]string
	// leads holds the addresses that are the canonical id of others.
	leads map[store.Address]struct{}
}

// resolve returns the canonical id; an id without an alias stands for itself.
func (l *aliases) resolve(a store.Address) string {
	if id, ok := l.canonical[a]; ok {
		return id
	}
	return a.ID
}

// learn records that a is the same as older unless a is known, and returns the canonical id of a.
func (l *aliases) learn(a store.Address, older string) string {
	lead := a
	lead.ID = older
	lead.ID = l.resolve(lead)
	_, known := l.canonical[a]
	if _, leads := l.leads[a]; !known && !leads && lead != a {
		l.canonical[a] = lead.ID
		l.leads[lead] = struct{}{}
	}
	return l.resolve(a)
}

// ResolveAliases implements store.Aliases.
func (s *Store) ResolveAliases(ctx context.Context, addresses []store.Address) ([]string, error) {
	if err := checkAddresses(ctx, addresses); err != nil {
		return nil, fmt.Errorf("resolve aliases: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]string, len(addresses))
	for i, a := range addresses {
		out[i] = s.aliases.resolve(a)
	}
	return out, nil
}

// LearnAlias implements store.Aliases.
func (s *Store) LearnAlias(ctx context.Context, a store.Address, older string) (string, error) {
	lead := a
	lead.ID = older
	if err := checkAddresses(ctx, []store.Address{a, lead}); err != nil {
		return "", fmt.Errorf("learn alias: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.aliases.learn(a, older), nil
}

func checkAddresses(ctx context.Context, addresses []store.Address) error {
	if err := alive(ctx); err != nil {
		return err
	}
	var c checker
	for _, a := range addresses {
		c.text("address", a.Tenant, a.Platform, a.Account, a.ID)
	}
	return c.err
}
