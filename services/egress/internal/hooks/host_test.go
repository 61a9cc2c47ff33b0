package hooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/services/egress/internal/hooks"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

// soon is generous: the machine may be slow.
const soon = 30 * time.Second

const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// body is what receivers read of an event.
type body struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Tenant  string `json:"tenant"`
	SKey    string `json:"skey"`
	N       int64  `json:"n"`
	Content string `json:"content"`
}

// receiver is an endpoint that remembers what it took.
type receiver struct {
	*httptest.Server
	t *testing.T
	// answer says what to answer to a request.
	answer func(w http.ResponseWriter, r *http.Request)

	mu       sync.Mutex
	requests int
	taken    []body
}

func receive(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	r := &receiver{t: t, answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func ok(http.ResponseWriter, *http.Request) {}

func status(code int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(req.Body)
	if err != nil {
		return // the client has gone
	}
	key, err := webhook.ParseKey(secret)
	if err == nil {
		err = webhook.Verify([]webhook.Key{key}, req.Header, raw, time.Now())
	}
	var b body
	if err == nil {
		err = json.Unmarshal(raw, &b)
	}
	if err != nil || b.ID != req.Header.Get(webhook.HeaderID) {
		r.t.Errorf("request of a hook: %v, id %q", err, b.ID)
	}
	r.mu.Lock()
	r.requests++
	r.taken = append(r.taken, b)
	r.mu.Unlock()
	r.answer(w, req)
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// of are the events of a session, in the order in which they came.
func (r *receiver) of(skey string) []body {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []body
	for _, b := range r.taken {
		if b.SKey == skey {
			list = append(list, b)
		}
	}
	return list
}

func (r *receiver) hook(t *testing.T) config.Hook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(secret), 0o600))
	ref, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	return config.Hook{URL: r.URL, Secret: ref, AllowPrivate: true}
}

// start runs the hooks in an egress process and returns it with an emitter.
func start(t *testing.T, env *servicetest.Env, hooked map[string]config.Hook) (*hooks.Host, *hook.Emitter) {
	t.Helper()
	cfg := config.Default()
	cfg.Hooks = hooked
	host, err := hooks.New(cfg, hooks.Deps{
		Bus: env.Bus, Logger: servicetest.Logger(), Meter: noop.Meter{}, Timing: hooks.Timing{
			Watch: 20 * time.Millisecond, Renew: 5 * time.Second, Expire: time.Minute, Margin: time.Second, Call: 10 * time.Second,
		},
	})
	require.NoError(t, err)
	servicetest.Start(t, host)
	emitter := hook.NewEmitter(env.Bus, servicetest.Logger())
	servicetest.Start(t, emitter)
	return host, emitter
}

// emit tells everything that may happen to one message of a session, in order.
func emit(e *hook.Emitter, skey string) {
	for i, typ := range event.Types() {
		e.Emit(event.Lifecycle{
			Type: typ, Tenant: "default", SKey: skey, RunID: "run-" + skey, MsgUID: "uid-" + skey, Gen: 1, N: int64(i + 1),
			Content: "what was said",
		})
	}
}

// inOrder requires that got are the events of emit, each once.
func inOrder(t *testing.T, got []body) {
	t.Helper()
	require.Len(t, got, len(event.Types()))
	for i, typ := range event.Types() {
		require.Equal(t, string(typ), got[i].Type)
		require.Equal(t, int64(i+1), got[i].N)
		require.Equal(t, "default", got[i].Tenant)
		require.Empty(t, got[i].Content, "telemetry.content is off")
	}
}

// TestHost_BringsEverythingToAHookWhateverTheOthersDo: one hook hangs, one fails, and the others get all types of events in
// the order of each session.
func TestHost_BringsEverythingToAHookWhateverTheOthersDo(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	audit := receive(t, ok)
	failing := receive(t, status(http.StatusInternalServerError))
	release := make(chan struct{})
	hanging := receive(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) }) // before the server is closed
	slow := hanging.hook(t)
	slow.Timeout = time.Hour
	published := make(chan bus.Msg, 1024)
	sub, err := env.Bus.Listen("acme.events.*", published)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	_, emitter := start(t, env, map[string]config.Hook{
		"audit": audit.hook(t), "failing": failing.hook(t), "hanging": slow, "bus": {Subject: "acme.events"},
	})

	sessions := []string{"a", "b", "c"}
	for _, skey := range sessions {
		emit(emitter, skey)
	}
	for _, skey := range sessions {
		await.True(t, soon, func() bool { return len(audit.of(skey)) == len(event.Types()) })
		inOrder(t, audit.of(skey))
	}
	bySession := map[string][]body{}
	for range len(sessions) * len(event.Types()) {
		select {
		case m := <-published:
			var b body
			require.NoError(t, json.Unmarshal(m.Data, &b))
			require.Equal(t, "acme.events."+b.Type, m.Subject)
			require.Equal(t, b.ID, m.ID)
			bySession[b.SKey] = append(bySession[b.SKey], b)
		case <-time.After(soon):
			t.Fatal("not all events were published")
		}
	}
	for _, skey := range sessions {
		inOrder(t, bySession[skey])
	}
	await.True(t, soon, func() bool { return hanging.count() == len(sessions) }, "each session waits for its first event")
	await.True(t, soon, func() bool { return failing.count() >= len(sessions) })
	require.Zero(t, emitter.Dropped())
}

func TestHost_SelectsTypesAndTenants(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	r := receive(t, ok)
	cfg := r.hook(t)
	cfg.Events, cfg.Tenants = []string{"run_finished", "run_dead"}, []string{"acme"}
	_, emitter := start(t, env, map[string]config.Hook{"audit": cfg})
	emit(emitter, "other tenant")
	emitter.Emit(event.Lifecycle{Type: event.RunStarted, Tenant: "acme", SKey: "a", RunID: "r", Gen: 1, N: 1})
	emitter.Emit(event.Lifecycle{Type: event.RunFinished, Tenant: "acme", SKey: "a", RunID: "r", Gen: 1, N: 2})
	await.True(t, soon, func() bool { return r.count() > 0 })
	require.Len(t, r.of("a"), 1)
	require.Equal(t, "run_finished", r.of("a")[0].Type)
	require.Equal(t, 1, r.count())
}

func TestHost_RepeatsWhatMayHelpAndNothingElse(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	var mu sync.Mutex
	tries := map[string]int{}
	r := receive(t, nil)
	r.answer = func(w http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id := req.Header.Get(webhook.HeaderID)
		tries[id]++
		switch {
		case id == "r:1:run_started:1":
			w.WriteHeader(http.StatusGone)
		case tries[id] == 1:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}
	_, emitter := start(t, env, map[string]config.Hook{"audit": r.hook(t)})
	emitter.Emit(event.Lifecycle{Type: event.RunStarted, SKey: "a", RunID: "r", Gen: 1, N: 1})
	emitter.Emit(event.Lifecycle{Type: event.RunFinished, SKey: "a", RunID: "r", Gen: 1, N: 2})
	await.True(t, soon, func() bool { return r.count() == 3 })
	var seen []string
	for _, b := range r.of("a") {
		seen = append(seen, b.ID)
	}
	require.Equal(t, []string{"r:1:run_started:1", "r:1:run_finished:2", "r:1:run_finished:2"}, seen)
}

func TestHost_AnotherProcessGoesOnInOrder(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	r := receive(t, ok)
	cfg := map[string]config.Hook{"audit": r.hook(t)}
	first, emitter := start(t, env, cfg)
	start(t, env, cfg)
	emit(emitter, "a")
	await.True(t, soon, func() bool { return len(r.of("a")) == len(event.Types()) })
	inOrder(t, r.of("a"))
	stop(t, first)
	emit(emitter, "b")
	await.True(t, soon, func() bool { return len(r.of("b")) == len(event.Types()) })
	inOrder(t, r.of("b"))
}

func stop(t *testing.T, h *hooks.Host) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, h.Stop(ctx))
}

func TestHost_KeepsEventsWhileNobodyRuns(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	r := receive(t, ok)
	cfg := map[string]config.Hook{"audit": r.hook(t)}
	first, emitter := start(t, env, cfg)
	stop(t, first)
	emit(emitter, "a")
	start(t, env, cfg)
	await.True(t, soon, func() bool { return len(r.of("a")) == len(event.Types()) })
	inOrder(t, r.of("a"))
}

func TestHost_ReachesNoAddressInsideUnlessAllowed(t *testing.T) {
	t.Parallel()
	env := servicetest.New(t)
	inside, allowed := receive(t, ok), receive(t, ok)
	closed := inside.hook(t)
	closed.AllowPrivate = false
	_, emitter := start(t, env, map[string]config.Hook{"closed": closed, "open": allowed.hook(t)})
	for i := range 3 {
		emitter.Emit(event.Lifecycle{Type: event.RunStarted, SKey: "a", RunID: fmt.Sprint(i), Gen: 1, N: 1})
	}
	await.True(t, soon, func() bool { return allowed.count() == 3 })
	require.Zero(t, inside.count())
}

func TestNew_RefusesASecretThatIsNotThere(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	ref, err := config.NewSecret("file:" + filepath.Join(t.TempDir(), "none"))
	require.NoError(t, err)
	cfg.Hooks = map[string]config.Hook{"audit": {URL: "https://example.test/", Secret: ref}}
	_, err = hooks.New(cfg, hooks.Deps{Logger: servicetest.Logger(), Meter: noop.Meter{}})
	require.ErrorContains(t, err, "hooks.audit: secret: ")
}
