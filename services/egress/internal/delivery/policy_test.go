package delivery

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestAfterFailure_DecidesByClassAndTries(t *testing.T) {
	t.Parallel()
	plain, keyed := channel.Capability{}, channel.Capability{IdempotentFor: time.Hour}
	fail := func(c channel.Class, after time.Duration) error {
		return &channel.SendError{Class: c, RetryAfter: after, Err: errors.New("x")}
	}
	for _, c := range []struct {
		name            string
		err             error
		cap             channel.Capability
		attempts, maybe int
		age             time.Duration
		state           store.OutState
		after           time.Duration
		counts          bool
	}{
		{"not sent", fail(channel.NotSent, 0), plain, 1, 0, 0, "", time.Second, false},
		{"not sent again", fail(channel.NotSent, 0), plain, 4, 0, 0, "", 8 * time.Second, false},
		{"not sent for long", fail(channel.NotSent, 0), plain, 11, 0, 0, "", 5 * time.Minute, false},
		{"not sent too often", fail(channel.NotSent, 0), plain, 12, 0, minLife, store.OutDead, 0, false},
		{"many tries of a young row", fail(channel.NotSent, 0), plain, 12, 0, 0, "", 5 * time.Minute, false},
		{"the platform says when", fail(channel.NotSent, 33*time.Second), plain, 1, 0, 0, "", 33 * time.Second, false},
		{"the platform asks for too much", fail(channel.NotSent, 24*time.Hour), plain, 1, 0, 0, "", time.Hour, false},
		{"credential", fail(channel.Credential, 0), plain, 1, 0, 0, "", time.Second, false},
		{"credential too often", fail(channel.Credential, 0), plain, 12, 0, minLife, store.OutDead, 0, false},
		{"permanent", fail(channel.Permanent, 0), keyed, 1, 0, 0, store.OutDead, 0, false},
		{"moved to nowhere", fail(channel.Moved, 0), keyed, 1, 0, 0, store.OutDead, 0, false},
		{"unknown, plain", fail(channel.Unknown, 0), plain, 1, 0, 0, "", 30 * time.Second, true},
		{"unknown twice, plain", fail(channel.Unknown, 0), plain, 2, 1, 0, store.OutUnknown, 0, false},
		{"unknown, keyed", fail(channel.Unknown, 0), keyed, 1, 0, 0, "", time.Second, true},
		{"unknown often, keyed", fail(channel.Unknown, 0), keyed, 11, 10, 0, "", 5 * time.Minute, true},
		{"unknown too often, keyed", fail(channel.Unknown, 0), keyed, 12, 11, minLife, store.OutUnknown, 0, false},
		{"unknown, the window has passed", fail(channel.Unknown, 0), keyed, 3, 1, 2 * time.Hour, store.OutUnknown, 0, false},
		{"no class", context.DeadlineExceeded, plain, 1, 0, 0, "", 30 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := afterFailure(c.err, &store.Delivery{Attempts: c.attempts, Maybe: c.maybe}, c.cap, c.age)
			require.Equal(t, c.state, v.state)
			require.Equal(t, c.after, v.after)
			require.Equal(t, c.counts, v.maybe)
			require.False(t, v.dropped)
			require.ErrorIs(t, v.err, c.err)
		})
	}
}

func TestWorthTrying_NeverMakesAThirdCopy(t *testing.T) {
	t.Parallel()
	plain, keyed := channel.Capability{}, channel.Capability{IdempotentFor: time.Hour}
	require.True(t, worthTrying(&store.Delivery{Maybe: 1}, plain, 0))
	require.False(t, worthTrying(&store.Delivery{Maybe: 2}, plain, 0))
	require.True(t, worthTrying(&store.Delivery{Maybe: 9}, keyed, time.Minute))
	require.False(t, worthTrying(&store.Delivery{Maybe: 2}, keyed, time.Hour))
}

// never fails the test if anything is sent.
type never struct{ t *testing.T }

func (never) Capability() channel.Capability            { return channel.Capability{} }
func (never) Split(parts []channel.Part) []channel.Part { return parts }
func (n never) Send(context.Context, channel.Send) (string, error) {
	n.t.Error("sent")
	return "", nil
}

func inHand(t *testing.T, row store.Delivery) (*Deliverer, *job) {
	t.Helper()
	d, err := New(Config{ID: "e", SendTimeout: time.Second, Parallel: 1}, Deps{Meter: noop.Meter{}})
	require.NoError(t, err)
	return d, &job{Delivery: row, lane: &lane{sender: never{t}}, held: time.Now()}
}

func TestTry_DoesNotSendLateInAClaim(t *testing.T) {
	t.Parallel()
	d, j := inHand(t, store.Delivery{Target: []byte(`{}`), Parts: channel.EncodeParts(channel.Part{Markdown: "x"})})
	j.held = time.Now().Add(-sendStart)
	v := d.try(t.Context(), j)
	require.Empty(t, v.state)
	require.Zero(t, v.after)
	require.False(t, v.maybe, "nothing was sent")
	require.False(t, v.dropped)
}

func TestTry_GivesUpWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, row := range []store.Delivery{
		{Target: []byte(`[]`), Parts: []byte(`[]`)},
		{Target: []byte(`{}`), Parts: []byte(`{}`)},
		{Target: []byte(`{}`), Parts: []byte(`[]`), PlatformIDs: []byte(`{}`)},
	} {
		d, j := inHand(t, row)
		v := d.try(t.Context(), j)
		require.Equal(t, store.OutDead, v.state)
		require.Error(t, v.err)
	}
}

func TestTry_SettlesARowWithoutParts(t *testing.T) {
	t.Parallel()
	d, j := inHand(t, store.Delivery{Target: []byte(`{}`), Parts: []byte(`[]`)})
	require.Equal(t, store.OutSent, d.try(t.Context(), j).state)
}

func TestMarker_ForgetsAHintAfterItsLife(t *testing.T) {
	t.Parallel()
	m := newMarker(nil, nil, nil)
	m.hints["a"] = hint{outSeq: 3, at: time.Now()}
	m.hints["b"] = hint{outSeq: 4, at: time.Now().Add(-hintLife)}
	require.Equal(t, int64(3), m.sent("a"))
	require.Zero(t, m.sent("b"))
	require.Zero(t, m.sent("c"))
}
