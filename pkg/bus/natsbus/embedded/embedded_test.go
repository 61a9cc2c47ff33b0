package embedded_test

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus/natsbus/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop()) })
	return s
}

func TestStart_ListensOnTheLoopbackAddressOnly(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Options{StoreDir: t.TempDir()})
	host, _, err := net.SplitHostPort(s.Server().Addr().String())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	require.NotZero(t, s.Port())
	nc, err := nats.Connect(s.ClientURL())
	require.NoError(t, err)
	nc.Close()
}

func TestStart_InProcessOnlyOpensNoPort(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Options{Memory: true, InProcessOnly: true})
	require.Zero(t, s.Port())
	nc, err := nats.Connect("", nats.InProcessServer(s))
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, MaxBytes: 8 << 30, Storage: jetstream.MemoryStorage})
	require.NoError(t, err, "limits of streams do not depend on the machine")
}

func TestStart_WithoutStoreDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	_, err := embedded.Start(embedded.Options{})
	require.EqualError(t, err, "embedded nats: no store directory")
}

func TestStart_OnAPortInUseFails(t *testing.T) {
	t.Parallel()
	first := start(t, embedded.Options{Memory: true})
	_, err := embedded.Start(embedded.Options{Memory: true, Port: first.Port()})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

func TestStop_RemovesTheDirectoryOfAMemoryServer(t *testing.T) {
	t.Parallel()
	s := start(t, embedded.Options{Memory: true})
	dir := s.Server().StoreDir()
	require.DirExists(t, dir)
	require.NoError(t, s.Stop())
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}
