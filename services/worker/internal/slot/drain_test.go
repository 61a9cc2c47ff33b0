package slot

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/control"
)

// draining is a puller with runs in hand and nothing else.
func draining(cfg Config) *Puller {
	logger := slog.New(slog.DiscardHandler)
	return &Puller{
		Deps: Deps{Control: control.NewListener(nil, nil, logger), Logger: logger}, cfg: cfg,
		room: newRoom(4), drained: make(chan struct{}, 1),
	}
}

// inHand takes a run in hand that ends when the channel that until returns is closed.
func (p *Puller) inHand(t *testing.T, skey string, until func(h *control.Handle) <-chan struct{}) *control.Handle {
	t.Helper()
	h := control.NewHandle(t.Context(), store.Fence{SKey: skey, Gen: 1})
	t.Cleanup(h.Close)
	p.Control.Add(h)
	p.catchUp(h)
	p.runs.Go(func() { <-until(h) })
	return h
}

func work(h *control.Handle) <-chan struct{} { return h.Work().Done() }
func hold(h *control.Handle) <-chan struct{} { return h.Hold().Done() }

func TestENG09_DrainAsksThenHandsOverThenAbandons(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg        Config
		soft, hard time.Duration
	}{
		"default shares": {Config{}, 90 * time.Second, 120 * time.Second},
		"own shares":     {Config{DrainSoft: 0.1, DrainHard: 0.5}, 15 * time.Second, 75 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := draining(c.cfg)
				polite, stubborn := p.inHand(t, "a", work), p.inHand(t, "b", hold)
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
				defer cancel()
				begun, stopped := time.Now(), make(chan error, 1)
				go func() { stopped <- p.Stop(ctx) }()
				synctest.Wait()
				require.True(t, polite.Leaving(), "at once")
				require.True(t, stubborn.Leaving())
				require.NoError(t, polite.Work().Err())

				<-polite.Work().Done()
				require.Equal(t, c.soft, time.Since(begun))
				require.Equal(t, agent.ErrHandover, context.Cause(polite.Work()))
				require.NoError(t, polite.Hold().Err(), "what it has done can still be written")
				require.NoError(t, <-stopped)
				require.Equal(t, c.hard, time.Since(begun))
				require.Equal(t, control.ErrDraining, context.Cause(stubborn.Hold()))

				late := p.inHand(t, "c", hold)
				require.Equal(t, control.ErrDraining, context.Cause(late.Hold()), "who comes later learns the stage")
				p.runs.Wait()
			})
		})
	}
}

func TestDrain_EndsWithItsTimeThoughARunDoesNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := draining(Config{})
		released := make(chan struct{})
		p.inHand(t, "a", func(*control.Handle) <-chan struct{} { return released })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		require.NoError(t, p.Stop(ctx))
		require.Equal(t, time.Minute, time.Since(begun))
		close(released)
		p.runs.Wait()
	})
}
