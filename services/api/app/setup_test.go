package app_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/api/app"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, natsserver.IgnoreClock()) }

// flaky is a store that can be down.
type flaky struct {
	store.Store
	down atomic.Bool
	// missed is how many of the next submissions it does not find in time.
	missed atomic.Int32
}

func (f *flaky) Session(ctx context.Context, skey string) (store.Session, error) {
	if f.down.Load() {
		return store.Session{}, store.ErrUnavailable
	}
	return f.Store.Session(ctx, skey)
}

func (f *flaky) Run(ctx context.Context, id uuid.UUID) (store.Run, error) {
	if f.down.Load() {
		return store.Run{}, store.ErrUnavailable
	}
	return f.Store.Run(ctx, id)
}

func (f *flaky) Submission(ctx context.Context, skey, uid string) (store.Submission, error) {
	if f.down.Load() || f.missed.Add(-1) >= 0 {
		return store.Submission{}, store.ErrUnavailable
	}
	return f.Store.Submission(ctx, skey, uid)
}

// api is the service with a hand for the router and one for the worker.
type api struct {
	*servicetest.Env
	t      *testing.T
	app    *app.App
	store  *flaky
	url    string
	client *http.Client
}

// timing is short where tests wait for it, and long where they must not.
func timing() runapi.Timing {
	return runapi.Timing{
		Look: 50 * time.Millisecond, Ask: time.Second, Renew: time.Minute,
		Admission: 300 * time.Millisecond, Settle: 10 * time.Second, Ping: time.Minute, Write: time.Minute,
		Answer: time.Minute,
	}
}

func setup(t *testing.T) *api {
	t.Helper()
	return setupWith(t, timing(), noChange)
}

func noChange(*config.Config) {}

func setupWith(t *testing.T, timing runapi.Timing, change func(*config.Config)) *api {
	t.Helper()
	d := &api{Env: servicetest.New(t), t: t, client: &http.Client{Transport: checked(t, &http.Transport{})}}
	d.store = &flaky{Store: d.Store}
	cfg := config.Default()
	cfg.API.Addr = "127.0.0.1:0"
	cfg.Engine.MaxBodyBytes = 64 << 10
	change(&cfg)
	b := d.Backends()
	b.Store = d.store
	var err error
	d.app, err = app.NewWithTiming(cfg, b, timing)
	require.NoError(t, err)
	servicetest.Start(t, d.app)
	t.Cleanup(d.client.CloseIdleConnections)
	d.url = "http://" + d.app.Addr()
	return d
}

func secretFile(t *testing.T, value string) config.Secret {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
	s, err := config.NewSecret("file:" + path)
	require.NoError(t, err)
	return s
}

// answer holds the members of all answers.
type answer struct {
	status         int
	header         http.Header
	members        map[string]any
	MessageID      string  `json:"message_id"`
	SessionID      string  `json:"session_id"`
	RunID          *string `json:"run_id"`
	EventsURL      string  `json:"events_url"`
	Duplicate      bool
	State          string
	Text           string
	Waiting        int
	ConversationID string `json:"conversation_id"`
	Session        string
	Usage          json.RawMessage
	StartedAt      *time.Time `json:"started_at"`
	EndedAt        *time.Time `json:"ended_at"`
	Attempts       int
	Error          json.RawMessage
	Code           string
	ID             string
	Object         string
	Model          string
	Choices        []struct {
		Message      struct{ Role, Content string }
		FinishReason string `json:"finish_reason"`
	}
}

type problem struct{ Message, Type, Param, Code string }

func (a answer) problem(t *testing.T) problem {
	t.Helper()
	var p problem
	require.NoError(t, json.Unmarshal(a.Error, &p))
	return p
}

const testTimeout = 30 * time.Second

func (d *api) do(method, path string, header http.Header, body string) answer {
	d.t.Helper()
	r := d.try(method, path, header, body)
	require.NoError(d.t, r.err)
	return r.answer
}

type result struct {
	answer
	err error
}

// later posts meanwhile; await returns its answer.
func (d *api) later(path string, header http.Header, body string) <-chan result {
	got := make(chan result, 1)
	var sending sync.WaitGroup
	sending.Go(func() { got <- d.try(http.MethodPost, path, header, body) })
	d.t.Cleanup(sending.Wait)
	return got
}

func (d *api) await(got <-chan result) answer {
	d.t.Helper()
	r := <-got
	require.NoError(d.t, r.err)
	return r.answer
}

func (d *api) try(method, path string, header http.Header, body string) (r result) {
	ctx, cancel := context.WithTimeout(d.t.Context(), testTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return result{err: err}
	}
	req.Header = header
	req.Host = header.Get("Host") // "": that of the URL
	resp, err := d.client.Do(req)
	if err != nil {
		return result{err: err}
	}
	raw, err := io.ReadAll(resp.Body)
	r.status, r.header = resp.StatusCode, resp.Header
	r.err = errors.Join(err, resp.Body.Close(), json.Unmarshal(raw, &r.answer), json.Unmarshal(raw, &r.members))
	if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
		r.err = errors.Join(r.err, fmt.Errorf("content type %q: %s", kind, raw))
	}
	return r
}

func jsonHeader(pairs ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func (d *api) get(path string, pairs ...string) answer {
	d.t.Helper()
	return d.do(http.MethodGet, path, jsonHeader(pairs...), "")
}

// post sends a message to session s.
func (d *api) post(body string, pairs ...string) answer {
	d.t.Helper()
	return d.do(http.MethodPost, "/v1/sessions/s/messages", jsonHeader(pairs...), body)
}

// say posts text to session s and expects it to be accepted.
func (d *api) say(text string, pairs ...string) answer {
	d.t.Helper()
	raw, err := json.Marshal(map[string]string{"text": text})
	require.NoError(d.t, err)
	a := d.post(string(raw), pairs...)
	require.Equal(d.t, http.StatusAccepted, a.status, a.members)
	return a
}

// run is a run in the hands of the test.
type run struct {
	d    *api
	uid  string
	seq  int64
	skey string
	gen  int64
	id   uuid.UUID
	own  store.Claimed
	n    int64
}

// admit does what the router does with the n-th entry of the log. With a notice it is a command.
func (d *api) admit(n int, notice string) *run {
	d.t.Helper()
	if notice == "" {
		return d.admitAs(n, store.KindUser, "")
	}
	return d.admitAs(n, store.KindCommand, notice)
}

func (d *api) admitAs(n int, kind store.InboxKind, notice string) *run {
	d.t.Helper()
	m, err := event.Decode(d.Entry(d.t, n).Data)
	require.NoError(d.t, err)
	body, err := json.Marshal(m)
	require.NoError(d.t, err)
	row := store.AdmitMessage{
		SKey: m.SKey, Tenant: m.Tenant, SessionKey: m.SessionKey, AgentID: m.Profile, RunClass: m.RunClass, UID: m.UID,
		Kind: kind, Body: body, SessionID: uuid.New(), RunID: uuid.New(), WantsRun: kind == store.KindUser,
	}
	if notice != "" {
		row.Notice = &store.NewReply{
			Platform: "api", Target: json.RawMessage(`{}`), Parts: channel.EncodeParts(channel.Part{Markdown: notice, Notice: true}), Read: true,
		}
	}
	admitted, err := d.Store.Admit(d.t.Context(), store.Admission{Messages: []store.AdmitMessage{row}})
	require.NoError(d.t, err)
	require.False(d.t, admitted[0].Duplicate)
	return &run{d: d, uid: m.UID, skey: m.SKey, seq: admitted[0].Seq, gen: admitted[0].Gen, id: admitted[0].RunID}
}

// begin does what a worker does first.
func (r *run) begin() *run {
	r.d.t.Helper()
	claimed, err := r.d.Store.Claim(r.d.t.Context(), []store.ClaimRequest{{
		Fence: store.Fence{SKey: r.skey, Gen: r.gen, RunID: r.id, Owner: "w/" + uuid.NewString()},
	}})
	require.NoError(r.d.t, err)
	require.Len(r.d.t, claimed, 1)
	r.own = claimed[0]
	return r
}

// finish ends the run with one reply for each text, and returns the run of the next message, if one waits.
func (r *run) finish(state store.RunState, texts ...string) {
	r.d.t.Helper()
	r.finishFrom(r.seq, state, texts...)
}

// finishFrom ends a run that covers the rows from that one on and answers its own, which has replaced the others.
func (r *run) finishFrom(from int64, state store.RunState, texts ...string) {
	r.d.t.Helper()
	f := store.Finish{
		Fence: r.own.Fence, RunGen: r.own.FirstGen, From: from, To: r.seq, State: state,
		Usage: json.RawMessage(`{"input_tokens":3,"output_tokens":4}`), NextRunID: uuid.New(),
		Messages: []store.Message{{RunGen: r.own.FirstGen, RunID: r.id, Role: "user", Content: json.RawMessage(`{}`), InboxSeq: r.seq}},
	}
	for seq := from; seq < r.seq; seq++ {
		f.Messages = append(f.Messages, store.Message{
			RunGen: r.own.FirstGen, N: int(seq - from + 1), RunID: r.id, Role: store.RoleSuperseded, Content: json.RawMessage(`{}`), InboxSeq: seq,
		})
		f.Replies = append(f.Replies, store.NewReply{
			DKey: fmt.Sprintf("%d:superseded", seq), Platform: "api", Target: json.RawMessage(`{}`), Read: true,
			Parts: channel.EncodeParts(channel.Part{Markdown: "replaced", Notice: true}),
		})
	}
	if state == store.RunFailed {
		f.Error = "the model is gone"
	}
	for _, text := range texts {
		f.Replies = append(f.Replies, store.NewReply{
			Platform: "api", Target: json.RawMessage(`{}`), Parts: channel.EncodeParts(channel.Part{Markdown: text}), Read: true,
		})
	}
	result, err := r.d.Store.Finish(r.d.t.Context(), []store.Finish{f})
	require.NoError(r.d.t, err)
	require.Equal(r.d.t, store.Finished, result[0].Outcome)
}

// next is the next frame of the run.
func (r *run) next(kind runv1.FrameKind) *runv1.Frame {
	r.n++
	f := &runv1.Frame{Gen: r.gen, RunId: r.id.String(), N: r.n, Kind: kind}
	if kind == runv1.FrameKind_FRAME_KIND_START {
		f.MsgUids = []string{r.uid}
	}
	return f
}

func (r *run) send(frames ...*runv1.Frame) {
	r.d.t.Helper()
	for _, f := range frames {
		data, err := proto.Marshal(f)
		require.NoError(r.d.t, err)
		require.NoError(r.d.t, r.d.Bus.Notify(r.d.t.Context(), bus.Msg{Subject: bus.DeltaSubject(r.skey), Data: data}))
	}
}

func (r *run) start()        { r.d.t.Helper(); r.send(r.next(runv1.FrameKind_FRAME_KIND_START)) }
func (r *run) end()          { r.d.t.Helper(); r.send(r.next(runv1.FrameKind_FRAME_KIND_END)) }
func (r *run) step()         { r.d.t.Helper(); r.send(r.next(runv1.FrameKind_FRAME_KIND_STEP)) }
func (r *run) text(s string) { r.d.t.Helper(); r.send(r.textFrame(s)) }

func (r *run) textFrame(s string) *runv1.Frame {
	f := r.next(runv1.FrameKind_FRAME_KIND_TEXT)
	f.Text = s
	return f
}

func (r *run) tool(kind runv1.FrameKind, text, outcome string) {
	r.d.t.Helper()
	f := r.next(kind)
	f.Tool, f.CallId, f.Text, f.Outcome = "list_files", "c1", text, outcome
	r.send(f)
}

// snapshots answers every request for a snapshot of the run, and reports them.
func (r *run) snapshots(reply func(*runv1.SnapshotRequest) *runv1.SnapshotReply) <-chan *runv1.SnapshotRequest {
	r.d.t.Helper()
	in, asked := make(chan bus.Msg, 16), make(chan *runv1.SnapshotRequest, 64)
	sub, err := r.d.Bus.Listen(bus.SnapshotSubject(r.skey), in)
	require.NoError(r.d.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.d.t.Context()))
	done := make(chan struct{})
	r.d.t.Cleanup(func() {
		require.NoError(r.d.t, sub.Close())
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-in:
				req := &runv1.SnapshotRequest{}
				err := proto.Unmarshal(m.Data, req)
				data, encodeErr := proto.Marshal(reply(req))
				asked <- req
				err = errors.Join(err, encodeErr, r.d.Bus.Notify(ctx, bus.Msg{Subject: m.Reply, Data: data}))
				if err != nil {
					r.d.t.Errorf("answer snapshot: %v", err)
				}
			}
		}
	}()
	return asked
}

// stream is an open stream of server-sent events.
type stream struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
}

// sse is one event; data stays text.
type sse struct{ id, name, data string }

func (d *api) open(path string, pairs ...string) *stream {
	d.t.Helper()
	s, err := d.connect(path, pairs...)
	require.NoError(d.t, err)
	return s
}

// stream posts a message and reads its run from the answer.
func (d *api) stream(body string, pairs ...string) *stream {
	d.t.Helper()
	s, err := d.request(http.MethodPost, "/v1/sessions/s/messages", body, append(pairs, "Accept", "text/event-stream")...)
	require.NoError(d.t, err)
	return s
}

func (d *api) connect(path string, pairs ...string) (*stream, error) {
	return d.request(http.MethodGet, path, "", pairs...)
}

func (d *api) request(method, path, body string, pairs ...string) (*stream, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), testTimeout)
	d.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = jsonHeader(pairs...)
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { _ = resp.Body.Close() }) // it may have been cut
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return &stream{t: d.t, resp: resp, in: bufio.NewReader(resp.Body)}, nil
}

// next reads one event or comment; ok is false at the end.
func (s *stream) next() (e sse, ok bool) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return e, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "\n":
			return e, true
		case field == "":
			e.name = ": " + value
		case field == "id":
			e.id = value
		case field == "event":
			e.name = value
		case field == "data":
			e.data = value
		}
	}
}

// expect reads events and compares them.
func (s *stream) expect(want ...sse) {
	s.t.Helper()
	for _, w := range want {
		e, ok := s.next()
		require.True(s.t, ok, "the stream has ended before %v", w)
		require.Equal(s.t, w, e)
	}
}

// expectEnd reads the final event, and that nothing follows.
func (s *stream) expectEnd(name, data string) {
	s.t.Helper()
	s.expect(sse{name: name, data: data})
	e, ok := s.next()
	require.False(s.t, ok, "%v follows the final event", e)
}

func (r *run) final(text string) string {
	r.d.t.Helper()
	raw, err := json.Marshal(text)
	require.NoError(r.d.t, err)
	return `{"run_id":"` + r.id.String() + `","text":` + string(raw) + `,"usage":{"input_tokens":3,"output_tokens":4}}`
}

func (r *run) message() string { return accept.MessageID(r.skey, r.uid) }
