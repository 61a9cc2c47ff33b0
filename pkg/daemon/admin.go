package daemon

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"time"
)

// Check asks whether a dependency answers now.
type Check struct {
	Name  string
	Ready func(ctx context.Context) error
	// Optional dependencies degrade the service when they are down, they do not make it unready.
	Optional bool
}

// Health answers /livez and /readyz. The zero value is live and not ready until SetReady.
type Health struct {
	checks []Check
	ready  atomic.Bool
}

// NewHealth asks checks at every /readyz.
func NewHealth(checks ...Check) *Health { return &Health{checks: checks} }

// SetReady says whether the process takes work at all: false before the start and from the first moment of a drain.
func (h *Health) SetReady(ready bool) { h.ready.Store(ready) }

// status is the body of /readyz.
type status struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks,omitempty"`
}

const checkTimeout = 2 * time.Second

func (h *Health) check(ctx context.Context) (status, int) {
	if !h.ready.Load() {
		return status{Status: "not ready"}, http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	s := status{Status: "ready", Checks: map[string]string{}}
	code := http.StatusOK
	for _, c := range h.checks {
		err := c.Ready(ctx)
		switch {
		case err == nil:
			s.Checks[c.Name] = "ok"
		case c.Optional:
			s.Checks[c.Name] = err.Error()
			if code == http.StatusOK {
				s.Status = "degraded"
			}
		default:
			s.Checks[c.Name] = err.Error()
			s.Status, code = "not ready", http.StatusServiceUnavailable
		}
	}
	return s, code
}

// AdminHandler serves /livez (never looks at dependencies), /readyz and /metrics.
func AdminHandler(health *Health, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // the prober hung up: nobody to tell
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s, code := health.check(r.Context())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(s) // the prober hung up: nobody to tell
	})
	return mux
}
