package live

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
	"github.com/hermes-runtime/hermes/services/internal/follow"
)

// drafts is a platform whose previews are no messages.
type drafts struct {
	channel.Sender
	texts []string
}

func (*drafts) PreviewEvery(event.Address) time.Duration { return time.Second }
func (d *drafts) Preview(_ context.Context, p channel.Preview) (string, error) {
	d.texts = append(d.texts, p.Text)
	return "", nil
}
func (*drafts) DeletePreview(context.Context, event.Address, string) error { return nil }

func newDraft(t *testing.T) (*drafts, *preview) {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	d := &drafts{}
	w, err := New(Config{ID: "e1"}, Deps{Gate: rate.NewGate(ratelimit.NewLocal(), logger), Logger: logger, Meter: noop.Meter{}})
	require.NoError(t, err)
	s := &show{Watcher: w, sender: d, changed: make(chan struct{}, 1)}
	p := newPreview(s, d)
	p.held = time.Now()
	return d, p
}

func TestPreview_OneThatFadesIsShownAgain(t *testing.T) {
	t.Parallel()
	d, p := newDraft(t)
	require.NoError(t, p.take(follow.Event{Kind: follow.Text, Text: "hello"}))
	require.Equal(t, time.Second, p.update(t.Context()))
	require.Equal(t, keep, p.update(t.Context()), "nothing new")
	require.Equal(t, []string{"hello"}, d.texts)
	p.sent = p.sent.Add(-keep)
	require.Equal(t, time.Second, p.update(t.Context()))
	require.Equal(t, []string{"hello", "hello"}, d.texts)
}

func TestPreview_NothingIsShownWhenTheHoldMayEndMeanwhile(t *testing.T) {
	t.Parallel()
	d, p := newDraft(t)
	require.NoError(t, p.take(follow.Event{Kind: follow.Text, Text: "hello"}))
	p.held = time.Now().Add(-holdTime)
	require.Equal(t, time.Second, p.update(t.Context()))
	require.Empty(t, d.texts)
}

func TestShow_KeepsABoundedText(t *testing.T) {
	t.Parallel()
	_, p := newDraft(t)
	for range 100 {
		require.NoError(t, p.take(follow.Event{Kind: follow.Text, Text: string(make([]byte, 10<<10))}))
	}
	require.Less(t, len(p.current()), maxText+10<<10+1)
}
