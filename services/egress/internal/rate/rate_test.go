package rate_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
)

// sender has limits if it has buckets.
type sender struct{ channel.Sender }

type limited struct{ sender }

func (limited) Limits(a event.Address) []ratelimit.Bucket {
	return []ratelimit.Bucket{{Key: "bot", Rate: 0.001, Burst: 2}, {Key: a.ChatID, Rate: 0.001, Burst: 1}}
}

func at(account, chat string) event.Address {
	return event.Address{Platform: "p", Account: account, ChatID: chat}
}

func newGate() *rate.Gate { return rate.NewGate(ratelimit.NewLocal(), slog.New(slog.DiscardHandler)) }

func TestWait_TakesFromAllBucketsOfTheTarget(t *testing.T) {
	t.Parallel()
	g := newGate()
	require.Zero(t, g.Wait(t.Context(), limited{}, at("1", "a")))
	require.Positive(t, g.Wait(t.Context(), limited{}, at("1", "a")), "the chat")
	require.Zero(t, g.Wait(t.Context(), limited{}, at("1", "b")))
	require.Positive(t, g.Wait(t.Context(), limited{}, at("1", "c")), "the account")
	require.Zero(t, g.Wait(t.Context(), limited{}, at("2", "a")), "another account")
}

func TestSpare_LeavesTheLastTokenToMessages(t *testing.T) {
	t.Parallel()
	g := newGate()
	require.Zero(t, g.Spare(t.Context(), limited{}, at("1", "a")))
	require.Positive(t, g.Spare(t.Context(), limited{}, at("1", "b")), "one token of the account is left")
	require.Zero(t, g.Wait(t.Context(), limited{}, at("1", "b")))
	require.Positive(t, g.Wait(t.Context(), limited{}, at("1", "c")))
}

func TestWait_IsNothingForASenderWithoutLimits(t *testing.T) {
	t.Parallel()
	g := newGate()
	for range 10 {
		require.Zero(t, g.Wait(t.Context(), sender{}, at("1", "a")))
	}
}

type broken struct{}

func (broken) Take(context.Context, string, ...ratelimit.Bucket) (time.Duration, error) {
	return 0, errors.New("broken")
}

func (broken) Freeze(context.Context, string, string, time.Duration) error {
	return errors.New("broken")
}

func TestGate_LetsRequestsGoWhereRatesCannotBeRead(t *testing.T) {
	t.Parallel()
	g := rate.NewGate(broken{}, slog.New(slog.DiscardHandler))
	require.Zero(t, g.Wait(t.Context(), limited{}, at("1", "a")))
	g.Freeze(t.Context(), limited{}, at("1", "a"), &channel.SendError{RetryAfter: time.Hour})
}

func TestFreeze_ClosesWhatTheErrorNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err             error
		chat, otherChat bool
	}{
		"the chat":             {&channel.SendError{RetryAfter: 30 * time.Minute, Freezes: "a"}, true, false},
		"all of the target":    {&channel.SendError{RetryAfter: 30 * time.Minute}, true, true},
		"no time":              {&channel.SendError{Freezes: "a"}, false, false},
		"an error of no class": {errors.New("x"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGate()
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			g.Freeze(ended, limited{}, at("1", "a"), c.err)
			require.Equal(t, c.chat, g.Wait(t.Context(), limited{}, at("1", "a")) > 0)
			require.Equal(t, c.otherChat, g.Wait(t.Context(), limited{}, at("1", "b")) > 0)
			require.Zero(t, g.Wait(t.Context(), limited{}, at("2", "a")))
		})
	}
}

func TestFreeze_IsBounded(t *testing.T) {
	t.Parallel()
	g := newGate()
	g.Freeze(t.Context(), limited{}, at("1", "a"), &channel.SendError{RetryAfter: 1000 * time.Hour, Freezes: "a"})
	require.LessOrEqual(t, g.Wait(t.Context(), limited{}, at("1", "a")), rate.MaxFreeze)
}
