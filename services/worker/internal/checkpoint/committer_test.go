package checkpoint

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
)

// slow is a memory store that takes a second for each call and notes its calls.
type slow struct {
	*memstore.Store
	mu    sync.Mutex
	calls []string
}

func (s *slow) note(call string) {
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	<-time.After(time.Second) // virtual time
}

func (s *slow) Checkpoint(ctx context.Context, cps []store.Checkpoint) ([]store.CheckpointResult, error) {
	s.note("checkpoint")
	return s.Store.Checkpoint(ctx, cps)
}

func (s *slow) Finish(ctx context.Context, fins []store.Finish) ([]store.FinishResult, error) {
	s.note("finish")
	return s.Store.Finish(ctx, fins)
}

// claimed admits and claims a run of a session.
func (s *slow) claimed(t *testing.T, skey string) store.Claimed {
	t.Helper()
	admitted, err := s.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: "default", SessionKey: skey, UID: "m1", Kind: store.KindUser, Body: []byte(`{}`), WantsRun: true,
		SessionID: uuid.New(), RunID: uuid.New(),
	}}})
	require.NoError(t, err)
	got, err := s.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{
		SKey: skey, Gen: admitted[0].Gen, RunID: admitted[0].RunID, Owner: "worker-1/" + skey,
	}}})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0]
}

func startCommitter(t *testing.T, s Store) (*Committer, *sdkmetric.ManualReader) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	c, err := New(s, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"))
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) })
	return c, reader
}

func finishOf(c store.Claimed, message string) store.Finish {
	return store.Finish{
		Fence: c.Fence, RunGen: c.FirstGen, From: 1, To: 1, State: store.RunDone, NextRunID: uuid.New(),
		Messages: []store.Message{{N: 1, Role: "assistant", Content: []byte(message)}},
	}
}

func TestCommitter_SharesTransactionsAndKeepsKindsApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New()}
		c, _ := startCommitter(t, s)
		var wg sync.WaitGroup
		for _, skey := range []string{"a", "b", "c", "d", "e"} {
			run := s.claimed(t, skey)
			wg.Go(func() {
				signals, err := c.Checkpoint(t.Context(), store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen})
				require.NoError(t, err)
				require.Equal(t, int64(1), signals.LastSeq)
				result, err := c.Finish(t.Context(), finishOf(run, `{}`))
				require.NoError(t, err)
				require.Equal(t, store.Finished, result.Outcome)
				require.True(t, result.Known)
			})
			synctest.Wait()
		}
		wg.Wait()
		// The first checkpoint is alone, its finish comes while the others are on their way, and theirs are one call.
		require.ElementsMatch(t, []string{"checkpoint", "checkpoint", "finish", "finish"}, s.calls)
	})
}

func TestCommitter_OnlyTheRejectedFinishFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New()}
		c, _ := startCommitter(t, s)
		errs := map[string]error{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for skey, message := range map[string]string{"a": `{}`, "b": `{}`, "c": `{"text":"\u0000"}`, "d": `{}`} {
			run := s.claimed(t, skey)
			wg.Go(func() {
				_, err := c.Finish(t.Context(), finishOf(run, message))
				mu.Lock()
				defer mu.Unlock()
				errs[skey] = err
			})
		}
		wg.Wait()
		require.ErrorIs(t, errs["c"], store.ErrRejected)
		delete(errs, "c")
		require.Equal(t, map[string]error{"a": nil, "b": nil, "d": nil}, errs)
	})
}

func TestCommitter_CountsFencedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New()}
		c, reader := startCommitter(t, s)
		run := s.claimed(t, "a")
		run.Gen++
		_, err := c.Checkpoint(t.Context(), store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen})
		require.ErrorIs(t, err, store.ErrFenced)
		_, err = c.Handover(t.Context(), store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen})
		require.ErrorIs(t, err, store.ErrFenced)
		result, err := c.Finish(t.Context(), finishOf(run, `{}`))
		require.NoError(t, err)
		require.Equal(t, store.FinishFenced, result.Outcome)
		require.Equal(t, map[string]int64{"checkpoint": 1, "handover": 1, "finish": 1}, fencedWrites(t, reader))
	})
}

func TestCommitter_HandsARunOverUnderTheNextGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{Store: memstore.New()}
		c, _ := startCommitter(t, s)
		run := s.claimed(t, "a")
		gen, err := c.Handover(t.Context(), store.Checkpoint{
			Fence: run.Fence, RunGen: run.FirstGen, Messages: []store.Message{{N: 1, Role: "user", Content: []byte(`{}`), InboxSeq: 1}},
		})
		require.NoError(t, err)
		require.Equal(t, run.Gen+1, gen)
		row, err := s.Session(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, store.Queued, row.State)
		require.Equal(t, []any{run.RunID, gen}, []any{row.RunID, row.Gen})
		messages, err := s.RunMessages(t.Context(), run.RunID)
		require.NoError(t, err)
		require.Len(t, messages, 1)
	})
}

// suspending is a store that answers the first suspension only the second time, and knows no run but "a".
type suspending struct {
	*memstore.Store
	calls [][]store.Suspension
}

func (s *suspending) Suspend(_ context.Context, ss []store.Suspension) ([]store.SuspendResult, error) {
	if s.calls = append(s.calls, ss); len(s.calls) == 1 {
		return nil, store.ErrUnavailable
	}
	results := make([]store.SuspendResult, len(ss))
	for i, one := range ss {
		if one.SKey != "a" {
			results[i].Err = store.ErrFenced
			continue
		}
		results[i] = store.SuspendResult{Gen: one.Gen + 1, State: store.Waiting, FirstOut: 7}
	}
	return results, nil
}

func TestCommitter_SuspendsUnderTheNextGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &suspending{Store: memstore.New()}
		c, reader := startCommitter(t, s)
		ofA := store.Suspension{
			Checkpoint: store.Checkpoint{Fence: store.Fence{SKey: "a", Gen: 3}}, Seen: 2, Kind: store.WaitApproval,
		}
		result, err := c.Suspend(t.Context(), ofA)
		require.NoError(t, err)
		require.Equal(t, store.SuspendResult{Gen: 4, State: store.Waiting, FirstOut: 7}, result)
		require.Equal(t, [][]store.Suspension{{ofA}, {ofA}}, s.calls, "sent again while the store is unavailable")
		_, err = c.Suspend(t.Context(), store.Suspension{Checkpoint: store.Checkpoint{Fence: store.Fence{SKey: "b", Gen: 1}}})
		require.ErrorIs(t, err, store.ErrFenced)
		require.Equal(t, map[string]int64{"suspend": 1}, fencedWrites(t, reader))
	})
}

// fencedWrites returns how many writes were fenced, by statement.
func fencedWrites(t *testing.T, reader *sdkmetric.ManualReader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	counts := map[string]int64{}
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		statement, _ := p.Attributes.Value("statement")
		counts[statement.AsString()] = p.Value
	}
	return counts
}

func TestCommitter_GivesUpWithTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _ := startCommitter(t, down{})
		lost := errors.New("lost")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, lost)
		defer cancel()
		_, err := c.Checkpoint(ctx, store.Checkpoint{})
		require.ErrorIs(t, err, lost)
	})
}

type down struct{}

func (down) Checkpoint(context.Context, []store.Checkpoint) ([]store.CheckpointResult, error) {
	return nil, store.ErrUnavailable
}

func (down) Handover(context.Context, []store.Checkpoint) ([]store.HandoverResult, error) {
	return nil, store.ErrUnavailable
}

func (down) Suspend(context.Context, []store.Suspension) ([]store.SuspendResult, error) {
	return nil, store.ErrUnavailable
}

func (down) Finish(context.Context, []store.Finish) ([]store.FinishResult, error) {
	return nil, store.ErrUnavailable
}
