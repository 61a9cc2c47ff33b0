package app_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// A message that comes while the run of another one ends is seen by the end of that run, or it begins a run of its own.
func TestRTR03_AMessageThatComesBetweenTheLastLookAndTheEndIsNotStranded(t *testing.T) {
	t.Parallel()
	const rounds = 200
	ending := make(chan struct{}, 1)
	b := startBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
		select {
		case ending <- struct{}{}:
		default: // the second message of a round
		}
		return echo(ctx, n, req, say)
	}})
	c := newChat(webhook, "a")
	for n := range rounds {
		first, second := fmt.Sprintf("m%d", 2*n), fmt.Sprintf("m%d", 2*n+1)
		b.send(t, c, first, first)
		receive(t, ending)
		var wg sync.WaitGroup
		var late store.Admitted
		wg.Go(func() { // the model has answered: the end of the run is on its way to the store
			<-time.After(time.Duration(n) * 10 * time.Microsecond) // another moment in each round
			late = b.admit(t, c.row(second, second))[0]
		})
		wg.Wait()
		if late.Created { // as the router does: the run had ended
			b.ring(t, c, late, 0)
		}
		b.idle(t, c)
		sub, err := b.mem.Submission(t.Context(), c.skey, second)
		require.NoError(t, err)
		require.NotEqual(t, uuid.Nil, sub.Run.ID, "round %d: nobody has answered", n)
		require.Equal(t, []string{"re: " + second}, b.replies(t, sub.Run.ID))
		select { // nothing of this round may let the next one begin too early
		case <-ending:
		default:
		}
	}
	require.Len(t, b.model.calls(), 2*rounds, "each message is its own turn")
}

// The acknowledgement of a doorbell was lost: it comes again when its work is done.
func TestENG08_ADoorbellWhoseWorkIsDoneIsAcknowledgedWithoutARun(t *testing.T) {
	t.Parallel()
	b := startBench(t, &script{answer: echo})
	c := newChat(webhook, "a")
	a := b.send(t, c, "m1", "hi")
	b.ended(t, a.RunID)
	b.idle(t, c)
	b.ring(t, c, a, 1)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_claims_refused_total") == 1 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return b.sum(t, "hermes_worker_slots_used") == 0 }, patience, time.Millisecond)
	run, err := b.mem.Run(t.Context(), a.RunID)
	require.NoError(t, err)
	require.Equal(t, 1, run.Attempts)
	require.Len(t, b.model.calls(), 1)
	require.Equal(t, []string{"re: hi"}, b.replies(t, a.RunID))
	b.send(t, c, "m2", "more")
	b.idle(t, c)
	require.Len(t, b.model.calls(), 2, "it does not come back for ever")
}
