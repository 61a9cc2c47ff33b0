package slot

import (
	"context"
	"errors"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/batch"
	"github.com/hermes-runtime/hermes/services/worker/internal/boottime"
)

const claimLimit = 256

// errLost: the run is somebody else's, or nobody's any more.
var errLost = errors.New("claim lost")

// claimer claims runs that start together in one statement.
type claimer struct {
	queue *batch.Queue[*claim, *store.Claimed]
}

// claim is a request on its way. Its caller reads it when the answer is there.
type claim struct {
	store.ClaimRequest
	// at is the instant before the last try.
	at time.Duration
}

func newClaimer(s Store, clock boottime.Clock) *claimer {
	return &claimer{queue: batch.NewQueue(claimLimit, func(ctx context.Context, claims []*claim) ([]*store.Claimed, error) {
		reqs, at := make([]store.ClaimRequest, len(claims)), clock()
		for i, c := range claims {
			reqs[i], c.at = c.ClaimRequest, at
		}
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

// claim returns what was claimed and the instant before that, and errLost where the run is not ours. While the store is
// unavailable it tries again until ctx ends: a claim whose answer was lost finds its own owner and is answered then.
func (c *claimer) claim(ctx context.Context, f store.Fence) (*store.Claimed, time.Duration, error) {
	asked := &claim{ClaimRequest: store.ClaimRequest{Fence: f}}
	claimed, err := c.queue.Do(ctx, asked)
	if err != nil {
		return nil, 0, err
	}
	if claimed == nil {
		return nil, 0, errLost
	}
	return claimed, asked.at, nil
}
