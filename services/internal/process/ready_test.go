package process

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/services/internal/backends"
)

func TestAskReady_TellsByItsError(t *testing.T) {
	t.Parallel()
	var status atomic.Int32
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status.Store(http.StatusNotFound)
		}
		w.WriteHeader(int(status.Load()))
		_, _ = w.Write([]byte(`{"status":"x"}`)) // the test sees what the client got
	}))
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	require.NoError(t, askReady(t.Context(), "0.0.0.0:"+port))
	status.Store(http.StatusServiceUnavailable)
	require.EqualError(t, askReady(t.Context(), "0.0.0.0:"+port), `not ready: {"status":"x"}`)
	server.Close()
	require.ErrorIs(t, askReady(t.Context(), "0.0.0.0:"+port), backends.ErrUnreachable)
}

func TestCode_NamesEveryProblemAndItsKind(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.Equal(t, ExitDone, Code(&out, "router", nil))
	require.Empty(t, out.String())
	require.Equal(t, ExitUnreachable, Code(&out, "router", backends.ErrUnreachable))
	require.Equal(t, ExitUsage, Code(&out, "router", errUsage))
	require.Equal(t, "router: unreachable\nrouter: usage\n", out.String())
}
