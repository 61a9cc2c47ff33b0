package intake

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	// resolveTimeout is how long a message waits for the store, resolveRest how long the store is left alone after it did
	// not answer.
	resolveTimeout = 500 * time.Millisecond
	resolveRest    = 2 * time.Second
	learnTimeout   = 5 * time.Second
	// maxKnown bounds the aliases that are remembered.
	maxKnown = 10_000
)

// resolver finds canonical ids. Without an answer of the store it goes by what it remembers, else by the id itself:
// admission looks again, and moves what came under the wrong key.
type resolver struct {
	aliases store.Aliases
	logger  *slog.Logger
	now     func() time.Time

	mu sync.Mutex
	// byID holds true aliases only. They never change, so none gets old; an id that stands for itself may get an alias at
	// any time.
	byID  map[store.Address]string
	rests time.Time
	down  bool
}

func newResolver(d Deps) *resolver {
	return &resolver{aliases: d.Aliases, logger: d.Logger, now: d.Now, byID: map[store.Address]string{}}
}

// known is the canonical id of an address as far as it is remembered.
func (r *resolver) known(a store.Address) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if id, ok := r.byID[a]; ok {
		return id
	}
	return a.ID
}

func (r *resolver) canonical(ctx context.Context, a store.Address) string {
	if id := r.known(a); id != a.ID || r.resting() {
		return id
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	ids, err := r.aliases.ResolveAliases(ctx, []store.Address{a})
	r.answered(ctx, err)
	if err != nil {
		return a.ID
	}
	r.remember(a, ids[0])
	return ids[0]
}

// learn returns once the alias is stored.
func (r *resolver) learn(ctx context.Context, a store.Address, older string) error {
	ctx, cancel := context.WithTimeout(ctx, learnTimeout)
	defer cancel()
	id, err := r.aliases.LearnAlias(ctx, a, older)
	if err != nil {
		return err
	}
	r.remember(a, id)
	return nil
}

func (r *resolver) remember(a store.Address, id string) {
	if id == a.ID {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byID) >= maxKnown {
		clear(r.byID)
	}
	r.byID[a] = id
}

func (r *resolver) resting() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now().Before(r.rests)
}

// answered notes whether the store did, and logs the change.
func (r *resolver) answered(ctx context.Context, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.rests = r.now().Add(resolveRest)
	}
	if changed := r.down != (err != nil); !changed {
		return
	}
	r.down = err != nil
	if r.down {
		r.logger.WarnContext(ctx, "aliases cannot be resolved, messages are accepted under the ids that they name", "err", err)
		return
	}
	r.logger.InfoContext(ctx, "aliases are resolved again")
}
