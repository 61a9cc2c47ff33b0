package store

import "context"

// Address is an id of a chat or a user as its platform writes it.
type Address struct {
	Tenant, Platform, Account, ID string
}

// Aliases join the ids of one chat or one user. The oldest id is canonical, so that key, history, order and waiting
// messages stay when a chat moves.
type Aliases interface {
	// ResolveAliases returns the canonical id of each address, in order; an id without an alias stands for itself.
	ResolveAliases(ctx context.Context, addresses []Address) ([]string, error)
	// LearnAlias records that a is the same chat or user as older, durable on return, and returns the canonical id of
	// both. An alias that is known is never changed; learning twice, or both ways round, changes nothing.
	LearnAlias(ctx context.Context, a Address, older string) (canonical string, err error)
}
