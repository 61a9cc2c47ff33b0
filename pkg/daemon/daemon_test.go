package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/daemon"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// part notes what happens to it in a shared log.
type part struct {
	name              string
	log               *[]string
	startErr, stopErr error
}

func (p part) Start(context.Context) error {
	*p.log = append(*p.log, "start "+p.name)
	return p.startErr
}

func (p part) Stop(context.Context) error {
	*p.log = append(*p.log, "stop "+p.name)
	return p.stopErr
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func named(p part) daemon.Named { return daemon.Named{Name: p.name, Component: p} }

func TestGroup_StartsInOrderAndStopsInReverse(t *testing.T) {
	t.Parallel()
	var log []string
	g := &daemon.Group{Logger: quiet()}
	require.NoError(t, g.Start(t.Context(), named(part{name: "a", log: &log}), named(part{name: "b", log: &log, stopErr: errBoom})))
	err := g.Stop(t.Context())
	require.ErrorIs(t, err, errBoom)
	require.EqualError(t, err, "stop b: boom")
	require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, log)
	require.NoError(t, g.Stop(t.Context()), "the second stop does nothing")
	require.Len(t, log, 4)
}

func TestGroup_AFailedStartStopsThoseBefore(t *testing.T) {
	t.Parallel()
	var log []string
	g := &daemon.Group{Logger: quiet()}
	err := g.Start(t.Context(), named(part{name: "a", log: &log}), named(part{name: "b", log: &log, startErr: errBoom}), named(part{name: "c", log: &log}))
	require.ErrorIs(t, err, errBoom)
	require.ErrorContains(t, err, "start b: boom")
	require.Equal(t, []string{"start a", "start b", "stop b", "stop a"}, log)
}

func TestRun_DrainsWhenTheContextEnds(t *testing.T) {
	t.Parallel()
	var log []string
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- daemon.Run(ctx, quiet(), time.Second, named(part{name: "a", log: &log})) }()
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, []string{"start a", "stop a"}, log)
}

func TestLoops_StopWaitsForItsGoroutinesOrForTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var loops daemon.Loops
		require.NoError(t, loops.Stop(t.Context()), "before the first goroutine")

		loops = daemon.Loops{}
		release := make(chan struct{})
		loops.Go(t.Context(), func(ctx context.Context) { <-ctx.Done(); <-release })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, loops.Stop(ctx), context.DeadlineExceeded)
		close(release)
		require.NoError(t, loops.Stop(t.Context()))
	})
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

func TestAdmin_TellsLiveReadyDegradedAndNotReady(t *testing.T) {
	t.Parallel()
	var natsErr, redisErr error
	health := daemon.NewHealth(
		daemon.Check{Name: "nats", Ready: func(context.Context) error { return natsErr }},
		daemon.Check{Name: "redis", Optional: true, Ready: func(context.Context) error { return redisErr }},
	)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1\n") })
	server := daemon.NewHTTPServer("127.0.0.1:0", daemon.AdminHandler(health, metrics), quiet())
	require.NoError(t, server.Start(t.Context()))
	defer func() { require.NoError(t, server.Stop(context.Background())) }()
	base := "http://" + server.Addr()

	ready := func(wantCode int, wantStatus string) map[string]string {
		code, body := get(t, base+"/readyz")
		var got struct {
			Status string
			Checks map[string]string
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.Equal(t, wantCode, code)
		require.Equal(t, wantStatus, got.Status)
		return got.Checks
	}

	ready(http.StatusServiceUnavailable, "not ready")
	health.SetReady(true)
	require.Equal(t, map[string]string{"nats": "ok", "redis": "ok"}, ready(http.StatusOK, "ready"))
	redisErr = errBoom
	require.Equal(t, "boom", ready(http.StatusOK, "degraded")["redis"])
	natsErr = errBoom
	ready(http.StatusServiceUnavailable, "not ready")
	health.SetReady(false)
	ready(http.StatusServiceUnavailable, "not ready")

	code, body := get(t, base+"/livez")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	_, body = get(t, base+"/metrics")
	require.Equal(t, "m 1\n", body)
}

func TestHTTPServer_NamesAnAddressInUse(t *testing.T) {
	t.Parallel()
	first := daemon.NewHTTPServer("127.0.0.1:0", http.NotFoundHandler(), quiet())
	require.NoError(t, first.Stop(t.Context()), "before the start")
	require.NoError(t, first.Start(t.Context()))
	defer func() { require.NoError(t, first.Stop(context.Background())) }()
	second := daemon.NewHTTPServer(first.Addr(), http.NotFoundHandler(), quiet())
	require.ErrorContains(t, second.Start(t.Context()), "listen on "+first.Addr())
}
