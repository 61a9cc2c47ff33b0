package timer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/services/internal/timer"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func message() *event.Message {
	src := session.Source{Platform: "api", Account: "api", ChatID: "c", ChatType: "dm", UserID: "u"}
	m := &event.Message{
		Tenant: "default", SessionKey: session.Key(src, session.DefaultOptions()), Profile: "default", Kind: event.KindMessage,
		Source: src, ReplyTo: event.Address{Platform: event.PlatformAPI}, Text: "stand up",
	}
	m.SKey = session.SKey(m.Tenant, m.SessionKey)
	return m
}

func TestNext_FollowsTheSpec(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]time.Time{
		timer.Once:                         {},
		"0 9 * * *":                        noon.Add(21 * time.Hour),
		"30 12 * * *":                      noon.Add(30 * time.Minute),
		"CRON_TZ=Europe/Berlin 0 14 * * *": noon.Add(time.Hour),
	} {
		got, err := timer.Next(spec, noon)
		require.NoError(t, err, spec)
		require.True(t, want.Equal(got), "%s: %s", spec, got)
	}
	for _, spec := range []string{"", "tomorrow", "61 * * * *", "* * * * * *"} {
		_, err := timer.Next(spec, noon)
		require.ErrorIs(t, err, timer.ErrSpec, spec)
	}
}

func TestNew_KnowsWhenItFiresFirst(t *testing.T) {
	t.Parallel()
	once, err := timer.New("a", timer.Once, noon.Add(time.Minute), message(), noon)
	require.NoError(t, err)
	require.Equal(t, noon.Add(time.Minute), once.NextAt)
	daily, err := timer.New("b", "0 9 * * *", time.Time{}, message(), noon)
	require.NoError(t, err)
	require.Equal(t, noon.Add(21*time.Hour), daily.NextAt)
	_, err = timer.New("c", timer.Once, time.Time{}, message(), noon)
	require.EqualError(t, err, "never fires")
}

func TestMessage_HasOneIdentityPerFire(t *testing.T) {
	t.Parallel()
	tm, err := timer.New("a", "0 9 * * *", noon, message(), noon)
	require.NoError(t, err)
	data, uid, err := timer.Message(tm, noon)
	require.NoError(t, err)
	m, err := event.Decode(data)
	require.NoError(t, err)
	require.Equal(t, uid, m.UID)
	require.Len(t, uid, 32)
	require.Equal(t, "stand up", m.Text)
	_, again, err := timer.Message(tm, noon.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, uid, again, "whoever fires it")
	tm.NextAt = tm.NextAt.Add(24 * time.Hour)
	_, other, err := timer.Message(tm, noon)
	require.NoError(t, err)
	require.NotEqual(t, uid, other)
	tm.Body = []byte(`{"text": "x"}`)
	_, _, err = timer.Message(tm, noon)
	require.ErrorContains(t, err, "session_key: must not be empty")
}
