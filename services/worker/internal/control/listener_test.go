package control

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/agent"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

func TestListener_ReachesTheRunsOfASessionAndNoOthers(t *testing.T) {
	t.Parallel()
	logger := slog.New(slog.DiscardHandler)
	b, err := natsbus.Connect(t.Context(), natsbus.Config{URL: natsserver.NewMemory(t).URL(), Name: "test", Streams: bus.DefaultConfig()}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	l := NewListener(b, memstore.New(), logger)
	require.NoError(t, l.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, l.Stop(context.WithoutCancel(t.Context()))) })

	const one, two = "aaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbb"
	var handles []*Handle
	for _, h := range []*Handle{
		NewHandle(t.Context(), store.Fence{SKey: one, Gen: 1}), NewHandle(t.Context(), store.Fence{SKey: one, Gen: 2}),
		NewHandle(t.Context(), store.Fence{SKey: two, Gen: 1}),
	} {
		t.Cleanup(h.Close)
		l.Add(h)
		handles = append(handles, h)
	}
	require.ElementsMatch(t, handles, l.All())
	sub, err := l.Listen(one)
	require.NoError(t, err)

	send := func(data []byte) {
		require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: bus.ControlSubject(one), Data: data}))
	}
	send([]byte("\xff not a message"))
	data, err := proto.Marshal(&runv1.Control{Kind: fenced, Gen: 2})
	require.NoError(t, err)
	send(data)
	require.Eventually(t, func() bool { return handles[0].Hold().Err() != nil }, 10*time.Second, time.Millisecond)
	require.Equal(t, agent.ErrFenced, context.Cause(handles[0].Hold()))
	require.NoError(t, handles[1].Hold().Err())
	require.NoError(t, handles[2].Hold().Err())

	l.Remove(handles[0])
	l.Remove(handles[2])
	require.Equal(t, []*Handle{handles[1]}, l.All())
	require.NoError(t, sub.Close())
}
