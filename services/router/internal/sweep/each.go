package sweep

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// atOnce bounds the statements that a rule has on their way: engines need connections, too.
const atOnce = 4

// each calls f for every item, a few at once, and returns the first error. An item that fails keeps no other from its
// turn, until so many got no answer that the store must be down.
func each[T any](items []T, f func(T) error) error {
	var unanswered atomic.Int64
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, item := range items {
		if unanswered.Load() >= atOnce {
			break
		}
		group.Go(func() error {
			err := f(item)
			if errors.Is(err, store.ErrUnavailable) {
				unanswered.Add(1)
			}
			return err
		})
	}
	return group.Wait()
}
