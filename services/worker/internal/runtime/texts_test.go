package runtime

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
)

func TestNotes_TellDateAndPlace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 23, 30, 0, 0, time.FixedZone("west", -3600))
	require.Equal(t, "Today is Tuesday, 1 December 2026 (UTC).", notes(noteFacts{now: now}))
	all := notes(noteFacts{now: now, place: "slack", shared: true, tools: true, instructions: "Speak like a pirate."})
	require.Contains(t, all, "You are talking on slack.")
	require.Contains(t, all, sharedNote)
	require.Contains(t, all, workspaceNote)
	require.True(t, strings.HasSuffix(all, "\n\nClient instructions:\nSpeak like a pirate."), all)
}

func TestFailure_FitsADatabase(t *testing.T) {
	t.Parallel()
	require.Empty(t, failure(nil))
	require.Equal(t, "ab", failure(errors.New("a\x00b")))
	long := failure(errors.New(strings.Repeat("ü", failureBytes)))
	require.LessOrEqual(t, len(long), failureBytes)
	require.Equal(t, strings.Repeat("ü", failureBytes/2), long)
	odd := failure(errors.New("x" + strings.Repeat("ü", failureBytes)))
	require.Equal(t, "x"+strings.Repeat("ü", failureBytes/2-1), odd, "no rune is cut")
}

func TestSummary_RepeatsNothingThatAProviderWrote(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("execute: %w", &llm.Error{Kind: llm.KindBadRequest, Status: 400, Message: "your text was: secret"})
	require.Equal(t, "model: bad_request (400)", summary(err))
	require.Equal(t, "other", summary(errors.New("other")))
}

func TestSpeaker_PrefersTheName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Ann", speaker(session.Source{UserName: "Ann", UserID: "u1"}))
	require.Equal(t, "alt", speaker(session.Source{UserID: "u1", UserIDAlt: "alt"}))
}
