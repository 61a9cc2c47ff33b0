package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
)

func TestAccounts_PauseLongerWithEachRefusedProbe(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := accounts{paused: map[account]*pausedAccount{}}
	a, b := account{"p", "1"}, account{"p", "2"}
	require.Zero(t, s.wait(a, now))

	pause, first := s.refuse(a, now)
	require.Equal(t, firstPause, pause)
	require.True(t, first)
	require.Zero(t, s.wait(b, now), "other accounts go on")

	now = now.Add(20 * time.Second)
	require.Equal(t, 40*time.Second, s.wait(a, now))
	pause, first = s.refuse(a, now)
	require.Equal(t, 40*time.Second, pause, "it was on its way when the pause began")
	require.False(t, first)

	for want := 2 * firstPause; want < 2*maxPause; want *= 2 {
		now = now.Add(s.wait(a, now))
		require.Zero(t, s.wait(a, now), "a probe")
		require.Equal(t, probeTime, s.wait(a, now), "the others wait for it")
		pause, first = s.refuse(a, now)
		require.Equal(t, min(want, maxPause), pause)
		require.False(t, first)
	}
	require.True(t, s.accept(a))
	require.False(t, s.accept(a))
	require.Zero(t, s.wait(a, now))
	pause, first = s.refuse(a, now)
	require.Equal(t, firstPause, pause)
	require.True(t, first)
}

func TestAccounts_AProbeWithoutAnAnswerIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := accounts{paused: map[account]*pausedAccount{}}
	a := account{"p", "1"}
	s.refuse(a, now)
	now = now.Add(firstPause)
	require.Zero(t, s.wait(a, now))
	require.Zero(t, s.wait(a, now.Add(probeTime)))
}

func TestPlaces_RememberMovesAndThreadsOfAnAccount(t *testing.T) {
	t.Parallel()
	p := newPlaces()
	at := func(account, chat, thread string) event.Address {
		return event.Address{Platform: "p", Account: account, ChatID: chat, ThreadID: thread, MessageID: "m"}
	}
	p.move(at("1", "old", ""), "new")
	p.drop(at("1", "new", "42"))
	for _, c := range []struct{ in, want event.Address }{
		{at("1", "old", ""), at("1", "new", "")},
		{at("1", "old", "42"), at("1", "new", "")},
		{at("1", "new", "42"), at("1", "new", "")},
		{at("1", "new", "43"), at("1", "new", "43")},
		{at("2", "old", "42"), at("2", "old", "42")},
		{at("1", "else", "42"), at("1", "else", "42")},
	} {
		require.Equal(t, c.want, p.current(c.in))
	}
}

func TestPlaces_AreBounded(t *testing.T) {
	t.Parallel()
	p := newPlaces()
	for i := range 3 * maxPlaces {
		a := event.Address{ChatID: fmt.Sprint(i), ThreadID: "t"}
		p.move(a, "x")
		p.drop(a)
		require.LessOrEqual(t, len(p.moved), maxPlaces)
		require.LessOrEqual(t, len(p.gone), maxPlaces)
	}
	require.Equal(t, "x", p.current(event.Address{ChatID: fmt.Sprint(3*maxPlaces - 1)}).ChatID)
}
