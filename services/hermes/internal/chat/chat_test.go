package chat

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/hermes/internal/client"
)

// server answers every message with the same events.
func server(t *testing.T, events string) Conversation {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, event("accepted", `{"message_id":"m","events_url":"/events"}`)+events)
	}))
	t.Cleanup(s.Close)
	return Conversation{Client: client.New(s.URL, ""), Session: "s"}
}

func event(kind, data string) string { return "event: " + kind + "\ndata: " + data + "\n\n" }

func TestOnce_StreamsTheAnswerAndToolProgress(t *testing.T) {
	t.Parallel()
	talk := server(t, event("text", `{"text":"let me see"}`)+event("step", `{}`)+event("tool_started", `{"tool":"list_files"}`)+
		event("tool_finished", `{"tool":"list_files","outcome":"ok"}`)+event("text", `{"text":"two "}`)+event("done", `{"text":"two files"}`))
	var out, progress bytes.Buffer
	_, err := talk.Once(t.Context(), "q", &out, &progress)
	require.NoError(t, err)
	require.Equal(t, "let me see\ntwo files\n", out.String(), "the committed text completes what was shown")
	require.Equal(t, "  ▸ list_files\n  ✓ list_files ok\n", progress.String())
}

func TestOnce_ShowsTheCommittedTextWhenTheStreamSaidOtherwise(t *testing.T) {
	t.Parallel()
	talk := server(t, event("text", `{"text":"old"}`)+event("failed", `{"text":"Sorry."}`))
	var out bytes.Buffer
	_, err := talk.Once(t.Context(), "q", &out, &out)
	require.ErrorIs(t, err, ErrRun)
	require.Equal(t, "old\nSorry.\n", out.String())
}

func TestLines_AsksEachLine(t *testing.T) {
	t.Parallel()
	talk := server(t, event("done", `{"text":"yes"}`))
	var out bytes.Buffer
	require.NoError(t, talk.Lines(t.Context(), strings.NewReader("one\n\n  \ntwo\n"), &out, &out))
	require.Equal(t, "yes\nyes\n", out.String())
}

func TestScreen_PrintsInTheOrderOfEvents(t *testing.T) {
	t.Parallel()
	s := newScreen(t.Context(), Conversation{})
	s.waiting = 1
	// Nothing is printed while the first line is under way: what follows waits in order.
	require.NotNil(t, s.print("› question"))
	for _, e := range []client.Event{
		{Kind: client.Text, Text: "let me see"},
		{Kind: client.Step},
		{Kind: client.ToolStarted, Tool: "list_files"},
		{Kind: client.ToolFinished, Tool: "list_files", Outcome: "ok"},
		{Kind: client.Text, Text: "two"},
	} {
		s.Update(eventMsg{e})
	}
	require.Contains(t, s.View().Content, "two")
	s.Update(askedMsg{last: client.Event{Kind: client.Done, Text: "two files"}})
	joined := strings.Join(s.lines, "\n")
	require.Less(t, strings.Index(joined, "let me see"), strings.Index(joined, "list_files ok"))
	require.Less(t, strings.Index(joined, "list_files ok"), strings.Index(joined, "two files"))
	require.NotContains(t, s.View().Content, "two", "the finished answer is not shown twice")

	_, cmd := s.Update(printedMsg{})
	require.NotNil(t, cmd)
	require.Empty(t, s.lines)
	_, cmd = s.Update(printedMsg{})
	require.Nil(t, cmd)
	require.False(t, s.printing)
}

func TestScreen_CtrlCStopsTheAnswerAndThenLeaves(t *testing.T) {
	t.Parallel()
	said := make(chan string, 1)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		said <- string(body)
		fmt.Fprint(w, event("accepted", `{"message_id":"m","events_url":"/events"}`)+event("done", `{"text":"Stopping."}`))
	}))
	t.Cleanup(api.Close)
	ctrlC := tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	s := newScreen(t.Context(), Conversation{Client: client.New(api.URL, ""), Session: "s"})
	_, cmd := s.Update(ctrlC)
	require.Equal(t, tea.QuitMsg{}, cmd(), "nothing is on its way")
	require.Equal(t, stoppedMsg{}, s.stop()())
	require.Contains(t, <-said, `"/stop"`)

	s.waiting = 1
	_, cmd = s.Update(ctrlC)
	require.NotNil(t, cmd)
	require.True(t, s.leaving)
	_, cmd = s.Update(ctrlC)
	require.Equal(t, tea.QuitMsg{}, cmd())
}
