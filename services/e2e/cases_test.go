package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
)

func TestRTR04_WaitingMessagesGoOnAfterRunsThatFailed(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		switch question := newest(req); question {
		case "m1":
			return fakemodel.Reply{Text: "thinking", Hold: never}
		case "m3":
			return fakemodel.Reply{Status: http.StatusInternalServerError, Body: `{"error": {"message": "down"}}`}
		default:
			return fakemodel.Reply{Text: "answer " + question}
		}
	})
	s := start(t, options{model: model.URL, profile: "limits: {wall: 5s}"})
	for _, id := range []string{"m1", "m2", "m3", "m4"} {
		s.send(id, "c", id)
	}
	await.NoError(t, recovery, func() error {
		if shown := s.receiver.Shown("c"); len(shown) != 4 || shown[1] != "answer m2" || shown[3] != "answer m4" {
			return fmt.Errorf("shown %q", shown)
		}
		return nil
	})
	shown := s.receiver.Shown("c")
	require.NotEmpty(t, shown[0], "one notice for the run that took too long")
	require.True(t, strings.HasPrefix(shown[2], "Sorry"), "one for the model that failed: %q", shown[2])
	require.Equal(t, 2, s.count(`select count(*) from runs where state = 'failed'`))
	await.NoError(t, recovery, func() error {
		if n := s.count(`select count(*) from sessions where state <> 'idle' or out_sent <> out_seq`); n != 0 {
			return fmt.Errorf("%d sessions are not idle", n)
		}
		return nil
	})
}

// The case asks for a hundred thousand sessions: what must not grow with them shows with a few hundred.
func TestENG05_ConsumersDoNotGrowWithTheNumberOfSessions(t *testing.T) {
	t.Parallel()
	const sessions, each = 300, 3
	model := fakemodel.Start(t, (&echo{}).reply)
	s := start(t, options{routers: 3, workers: 2, model: model.URL})
	s.send("first", "c000", "c000/first")
	s.awaitReplies(1, recovery)
	before := s.consumers()
	for n := range each {
		for c := range sessions {
			conversation := fmt.Sprintf("d%03d", c)
			s.send(fmt.Sprintf("%s-%d", conversation, n), conversation, fmt.Sprintf("%s/%d", conversation, n))
		}
	}
	s.awaitReplies(1+sessions*each, recovery)
	require.LessOrEqual(t, s.consumers(), before, "neither a consumer nor a filter per session")
	s.checkTiles()
}

// consumers counts those of all streams.
func (s *stack) consumers() int {
	s.t.Helper()
	conn, err := nats.Connect(s.nats.URL())
	require.NoError(s.t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(s.t, err)
	n := 0
	streams := js.ListStreams(s.t.Context())
	for info := range streams.Info() {
		n += info.State.Consumers
	}
	require.NoError(s.t, streams.Err())
	return n
}
