package slot

import (
	"context"
	"errors"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/batch"
)

const claimLimit = 256

// errLost: the run is somebody else's, or nobody's any more.
var errLost = errors.New("claim lost")

// claimer claims runs that start together in one statement.
type claimer struct {
	queue *batch.Queue[store.ClaimRequest, *store.Claimed]
}

func newClaimer(s Store) *claimer {
	return &claimer{queue: batch.NewQueue(claimLimit, func(ctx context.Context, reqs []store.ClaimRequest) ([]*store.Claimed, error) {
		claimed, err := s.Claim(ctx, reqs)
		if err != nil {
			return nil, err
		}
		return match(reqs, claimed), nil
	})}
}

// match puts what was claimed beside its request. Owners are unique, nil stands for what was not claimed.
func match(reqs []store.ClaimRequest, claimed []store.Claimed) []*store.Claimed {
	byOwner := make(map[string]*store.Claimed, len(claimed))
	for i := range claimed {
		byOwner[claimed[i].Owner] = &claimed[i]
	}
	results := make([]*store.Claimed, len(reqs))
	for i := range reqs {
		results[i] = byOwner[reqs[i].Owner]
	}
	return results
}

func (c *claimer) run(ctx context.Context) {
	defer c.queue.Close()
	for {
		select {
		case call := <-c.queue.Ready():
			c.queue.Flush(ctx, call)
		case <-ctx.Done():
			return
		}
	}
}

// claim returns errLost where the run is not ours. While the store is unavailable it tries again until ctx ends. A claim
// whose answer was lost counts as lost too: its owner never shows up, and the sweeper takes the run over.
func (c *claimer) claim(ctx context.Context, f store.Fence) (*store.Claimed, error) {
	claimed, err := c.queue.Do(ctx, store.ClaimRequest{Fence: f})
	if err != nil {
		return nil, err
	}
	if claimed == nil {
		return nil, errLost
	}
	return claimed, nil
}
