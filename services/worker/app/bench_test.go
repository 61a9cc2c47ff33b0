package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/bus/natsbus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease/redislease"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	"github.com/hermes-runtime/hermes/pkg/tool"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/worker/app"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redisserver.IgnoreProbes(), natsserver.IgnoreClock())
}

const (
	patience = 10 * time.Second
	webhook  = "webhook"
)

// script is a model whose answers are given by a function of the number of the call, from 0.
type script struct {
	answer func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error)

	mu       sync.Mutex
	requests []llm.Request
}

func (s *script) Generate(ctx context.Context, req llm.Request, say func(string)) (llm.Response, error) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, req)
	s.mu.Unlock()
	return s.answer(ctx, n, req, say)
}

func (*script) Provider() string { return "script" }

func (s *script) calls() []llm.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]llm.Request(nil), s.requests...)
}

func text(answer string) llm.Response {
	return llm.Response{
		Model: "m-1", Finish: llm.FinishStop, Usage: llm.Usage{InputTokens: 3, OutputTokens: 2},
		Message: llm.Message{Role: llm.Assistant, Text: answer},
	}
}

func call(name, arguments string) llm.Response {
	return llm.Response{
		Model: "m-1", Finish: llm.FinishToolCalls,
		Message: llm.Message{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "call-1", Name: name, Arguments: arguments}}},
	}
}

// echo answers with the last message of the user.
func echo(_ context.Context, _ int, req llm.Request, _ func(string)) (llm.Response, error) {
	return text("re: " + req.Messages[len(req.Messages)-1].Text), nil
}

// tools is an executor of two tools, look (read) and send (unsafe).
type tools struct {
	execute func(ctx context.Context, req tool.Request) (tool.Result, error)

	mu       sync.Mutex
	requests []tool.Request
}

func (*tools) Tools(context.Context) ([]tool.Spec, error) {
	return []tool.Spec{{Name: "look", Effect: tool.Read}, {Name: "send", Effect: tool.Unsafe}}, nil
}

func (x *tools) Execute(ctx context.Context, req tool.Request, _ func(string)) (tool.Result, error) {
	x.mu.Lock()
	x.requests = append(x.requests, req)
	x.mu.Unlock()
	if x.execute == nil {
		return tool.Result{Outcome: tool.OK, Content: "done"}, nil
	}
	return x.execute(ctx, req)
}

func (x *tools) calls() []tool.Request {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]tool.Request(nil), x.requests...)
}

// bench is one worker on a memory store, an embedded broker and a miniature Redis of its own.
type bench struct {
	cfg      config.Config
	mem      *memstore.Store
	bus      *natsbus.Bus
	redis    *miniredis.Miniredis
	leases   *redislease.Leases
	model    *script
	tools    *tools
	executor tool.Executor
	spans    *tracetest.SpanRecorder
	metrics  *sdkmetric.ManualReader
	backends backends.Backends
	// drainSoft and drainHard are those of app.Deps.
	drainSoft, drainHard float64
	// clock is that of app.Deps.
	clock func() time.Time
	app   *app.App

	events chan bus.Msg
}

// newBench wires everything and starts nothing.
func newBench(t *testing.T, model *script) *bench {
	t.Helper()
	b := &bench{
		mem: memstore.New(), model: model, tools: &tools{}, spans: tracetest.NewSpanRecorder(),
		metrics: sdkmetric.NewManualReader(), events: make(chan bus.Msg, 4096),
	}
	b.executor = b.tools
	logger := slog.New(slog.DiscardHandler)
	streams := bus.DefaultConfig()
	streams.Memory = true
	var err error
	b.bus, err = natsbus.Connect(t.Context(), natsbus.Config{URL: natsserver.NewMemory(t).URL(), Name: "test", Streams: streams}, logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.bus.Close()) })
	require.NoError(t, b.bus.EnsureStreams(t.Context()))
	b.redis = miniredis.RunT(t)
	b.leases, err = redislease.Open(t.Context(), redislease.Config{URL: "redis://" + b.redis.Addr()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.leases.Close()) })

	b.cfg = config.Default()
	b.cfg.Worker.ID, b.cfg.Worker.Slots = "worker-1", 16
	b.cfg.Providers = map[string]config.Provider{"script": {Kind: "demo", Model: "m-1"}}
	b.cfg.Profiles = map[string]config.Profile{config.DefaultProfile: {Provider: "script", Tools: []string{"*"}, Prompt: "Be brief."}}
	b.backends = backends.Backends{
		Bus: b.bus, Leases: b.leases, Store: b.mem, Logger: logger,
		Traces: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans)), Meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.metrics)),
	}
	return b
}

// new wires the worker.
func (b *bench) new() (err error) {
	b.app, err = app.New(b.cfg, b.backends, b.deps())
	return err
}

func (b *bench) deps() app.Deps {
	return app.Deps{
		Models: map[string]llm.Model{"script": b.model}, Executor: b.executor, DrainSoft: b.drainSoft, DrainHard: b.drainHard,
		Now: b.clock,
	}
}

// second starts another worker on the same backends, until the end of the test.
func (b *bench) second(t *testing.T) {
	t.Helper()
	cfg := b.cfg
	cfg.Worker.ID = "worker-2"
	second, err := app.New(cfg, b.backends, b.deps())
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		require.NoError(t, second.Stop(ctx))
	})
}

// start starts the worker until the end of the test.
func (b *bench) start(t *testing.T) {
	t.Helper()
	_, err := b.bus.Listen("evt.>", b.events)
	require.NoError(t, err)
	require.NoError(t, b.new())
	require.NoError(t, b.app.Start(t.Context()))
	t.Cleanup(func() { b.stop(t, time.Minute) })
}

func (b *bench) stop(t *testing.T, grace time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), grace)
	defer cancel()
	require.NoError(t, b.app.Stop(ctx))
}

func startBench(t *testing.T, model *script) *bench {
	t.Helper()
	b := newBench(t, model)
	b.start(t)
	return b
}

// chat is a conversation on a platform.
type chat struct {
	key, skey string
	platform  string
}

func newChat(platform, name string) chat {
	key := "agent:main:" + platform + ":dm:" + name
	return chat{key: key, skey: session.SKey(config.DefaultTenant, key), platform: platform}
}

func (c chat) message(uid, text string) *event.Message {
	return &event.Message{
		UID: uid, Tenant: config.DefaultTenant, SessionKey: c.key, SKey: c.skey, Profile: config.DefaultProfile, Kind: event.KindMessage,
		Source:  session.Source{Platform: c.platform, ChatID: "c1", ChatType: "dm", UserID: "u1"},
		ReplyTo: event.Address{Platform: c.platform, ChatID: "c1", MessageID: uid}, Text: text, PlatformMessageID: uid,
	}
}

// row is the admission of a message.
func (c chat) row(uid, text string, change ...func(*store.AdmitMessage)) store.AdmitMessage {
	body, err := json.Marshal(c.message(uid, text))
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	m := store.AdmitMessage{
		SKey: c.skey, Tenant: config.DefaultTenant, SessionKey: c.key, AgentID: config.DefaultProfile, RunClass: config.DefaultPool,
		UID: uid, Kind: store.KindUser, Body: body, WantsRun: true, SessionID: newID(), RunID: newID(),
	}
	for _, f := range change {
		f(&m)
	}
	return m
}

func stopRow(m *store.AdmitMessage) {
	m.Kind, m.WantsRun, m.Wakes, m.Stop = store.KindStop, false, true, true
}

// stopAllRow is a stop that covers what waits, too.
func (c chat) stopAllRow(uid string) store.AdmitMessage {
	m := c.message(uid, "/stop all")
	m.Kind, m.Command = event.KindCommand, &event.Command{Name: "stop", Args: "all"}
	body, err := json.Marshal(m)
	if err != nil { // strings only: cannot fail
		panic(err)
	}
	return c.row(uid, "", stopRow, func(row *store.AdmitMessage) { row.Body = body })
}

// resetRow is what /new is admitted as.
func resetRow(m *store.AdmitMessage) {
	m.Kind, m.WantsRun, m.Reset = store.KindCommand, false, true
}

func inGroup(name string) func(*store.AdmitMessage) {
	return func(m *store.AdmitMessage) { m.Group = name }
}

func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// admit is what the router's transaction does.
func (b *bench) admit(t *testing.T, rows ...store.AdmitMessage) []store.Admitted {
	t.Helper()
	admitted, err := b.mem.Admit(t.Context(), store.Admission{Messages: rows})
	require.NoError(t, err)
	return admitted
}

// ring is what the router does after it; n tells rings of one run apart.
func (b *bench) ring(t *testing.T, c chat, a store.Admitted, n int) {
	t.Helper()
	data, err := proto.Marshal(&runv1.Dispatch{Skey: c.skey, Gen: a.Gen, RunId: a.RunID.String()})
	require.NoError(t, err)
	_, err = b.bus.Publish(t.Context(), bus.Msg{
		Subject: bus.RunSubject(config.DefaultPool, c.skey), ID: fmt.Sprintf("%s:%d:%d", a.RunID, a.Gen, n), Data: data,
	})
	require.NoError(t, err)
}

// send admits a message and rings.
func (b *bench) send(t *testing.T, c chat, uid, text string) store.Admitted {
	t.Helper()
	a := b.admit(t, c.row(uid, text))[0]
	b.ring(t, c, a, 0)
	return a
}

func (b *bench) signal(t *testing.T, c chat, control *runv1.Control) {
	t.Helper()
	data, err := proto.Marshal(control)
	require.NoError(t, err)
	require.NoError(t, b.bus.Notify(t.Context(), bus.Msg{Subject: bus.ControlSubject(c.skey), Data: data}))
}

func (b *bench) stopRun(t *testing.T, c chat, uid string) store.Admitted {
	t.Helper()
	a := b.admit(t, c.row(uid, "/stop", stopRow))[0]
	b.signal(t, c, &runv1.Control{Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: a.Seq, Gen: a.Gen, RunId: a.StopRun.String()})
	return a
}

// ended waits for the end of a run.
func (b *bench) ended(t *testing.T, id uuid.UUID) store.Run {
	t.Helper()
	var run store.Run
	await.True(t, patience, func() bool {
		var err error
		run, err = b.mem.Run(t.Context(), id)
		return err == nil && run.State.Final()
	}, "run %s has not ended", id)
	return run
}

// idle waits until nothing is left to do in a session.
func (b *bench) idle(t *testing.T, c chat) store.Session {
	t.Helper()
	var s store.Session
	await.True(t, patience, func() bool {
		var err error
		s, err = b.mem.Session(t.Context(), c.skey)
		return err == nil && s.State == store.Idle
	}, "session is not idle")
	return s
}

func (b *bench) session(t *testing.T, c chat) store.Session {
	t.Helper()
	s, err := b.mem.Session(t.Context(), c.skey)
	require.NoError(t, err)
	return s
}

// said returns the messages of a run as "role: text".
func (b *bench) said(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := b.mem.RunMessages(t.Context(), id)
	require.NoError(t, err)
	var out []string
	for i, row := range rows {
		var m llm.Message
		require.NoError(t, json.Unmarshal(row.Content, &m))
		require.Equal(t, string(m.Role), row.Role)
		if i > 0 {
			require.Greater(t, row.N, rows[i-1].N)
		}
		line := fmt.Sprintf("%s: %s", m.Role, m.Text)
		for _, c := range m.ToolCalls {
			line += "[" + c.Name + "]"
		}
		out = append(out, line)
	}
	return out
}

// replies returns the texts that a run replied, notices in brackets.
func (b *bench) replies(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := b.mem.RunReplies(t.Context(), id)
	require.NoError(t, err)
	var out []string
	for _, row := range rows {
		var parts []channel.Part
		require.NoError(t, json.Unmarshal(row.Parts, &parts))
		for _, p := range parts {
			if p.Notice {
				p.Markdown = "[" + p.Markdown + "]"
			}
			out = append(out, p.Markdown)
		}
	}
	return out
}

// doorbells fetches what is rung for a platform until there are n.
func (b *bench) doorbells(t *testing.T, platform string, n int) []bus.Msg {
	t.Helper()
	worker, err := b.bus.Work(t.Context(), bus.OutQueue(platform))
	require.NoError(t, err)
	var msgs []bus.Msg
	await.True(t, patience, func() bool {
		works, err := worker.Fetch(t.Context(), 16, 10*time.Millisecond)
		require.NoError(t, err)
		for _, w := range works {
			require.NoError(t, w.Ack())
			msgs = append(msgs, w.Msg())
		}
		return len(msgs) >= n
	}, "doorbells are missing")
	require.Len(t, msgs, n)
	return msgs
}

// lifecycle returns the events of a run until last, without their durations.
func (b *bench) lifecycle(t *testing.T, id uuid.UUID, last event.Type) []*event.Lifecycle {
	t.Helper()
	var events []*event.Lifecycle
	end := time.After(patience)
	for {
		select {
		case m := <-b.events:
			ev, err := event.DecodeLifecycle(m.Data)
			require.NoError(t, err)
			if ev.RunID != id.String() {
				continue
			}
			events = append(events, ev)
			if ev.Type == last {
				return events
			}
		case <-end:
			require.FailNow(t, "event is missing", "%s after %d events", last, len(events))
		}
	}
}

func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing was received")
		panic("unreachable")
	}
}
