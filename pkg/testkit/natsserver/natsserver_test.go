package natsserver_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

func store(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	require.NoError(t, err)
	_, err = js.Publish(t.Context(), "s", []byte("x"))
	require.NoError(t, err)
}

func TestServer_KeepsFilesOverARestartOnTheSameAddress(t *testing.T) {
	t.Parallel()
	s := natsserver.New(t)
	before := s.URL()
	store(t, connect(t, before))
	require.NoError(t, s.Restart())
	require.Equal(t, before, s.URL())
	stream, err := connect(t, s.URL()).Stream(t.Context(), "S")
	require.NoError(t, err)
	require.Equal(t, uint64(1), stream.CachedInfo().State.Msgs)
}

func TestServer_InMemoryForgetsOnRestart(t *testing.T) {
	t.Parallel()
	s := natsserver.NewMemory(t)
	store(t, connect(t, "", nats.InProcessServer(s)))
	require.NoError(t, s.Restart())
	_, err := connect(t, s.URL()).Stream(t.Context(), "S")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound)
	require.True(t, s.Server().JetStreamEnabled())
}

func TestServer_ShutdownEndsIt(t *testing.T) {
	t.Parallel()
	s := natsserver.New(t)
	require.NoError(t, s.Shutdown())
	require.NoError(t, s.Shutdown())
	_, err := nats.Connect(s.URL())
	require.ErrorIs(t, err, nats.ErrNoServers)
}
