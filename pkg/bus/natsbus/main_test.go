package natsbus

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/bustest"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

// soon is how long something may take that is expected to happen.
const soon = 15 * time.Second

func streams() bus.Config {
	c := bus.DefaultConfig()
	c.IngestMaxBytes = 64 << 20
	c.EventMaxBytes = 8 << 20
	return c
}

// fast lets outages show in milliseconds.
func fast() timing {
	return timing{attempt: 500 * time.Millisecond, budget: 5 * time.Second, heartbeat: 250 * time.Millisecond, call: 2 * time.Second}
}

func open(t *testing.T, cfg Config, timing timing) *Bus {
	t.Helper()
	b, err := connect(t.Context(), cfg, slog.New(slog.DiscardHandler), timing)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// openReady also creates the streams.
func openReady(t *testing.T, url string) *Bus {
	t.Helper()
	b := open(t, Config{URL: url, Name: t.Name(), Streams: streams()}, fast())
	require.NoError(t, b.EnsureStreams(t.Context()))
	return b
}

func TestBus_PassesTheSuiteOverTheNetwork(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T) bus.Bus {
		t.Helper()
		b := open(t, Config{URL: natsserver.New(t).URL(), Name: "suite", Streams: streams()}, defaultTiming())
		require.NoError(t, b.EnsureStreams(t.Context()))
		return b
	})
}

func TestBus_PassesTheSuiteInProcessAndInMemory(t *testing.T) {
	t.Parallel()
	bustest.Run(t, func(t *testing.T) bus.Bus {
		t.Helper()
		s := streams()
		s.Memory = true
		b := open(t, Config{InProcess: natsserver.NewMemory(t), Name: "suite", Streams: s}, defaultTiming())
		require.NoError(t, b.EnsureStreams(t.Context()))
		return b
	})
}
