package agent_test

import (
	"net/http"
	"testing"
)

// newTransport keeps no connection beyond the test, so that goleak sees only leaks of the loop.
func newTransport(t *testing.T) http.RoundTripper {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}
