package app_test

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/servicetest"
)

// wholeSnapshot answers with a full snapshot up to frame n.
func (r *run) wholeSnapshot(text string, n int64) func(*runv1.SnapshotRequest) *runv1.SnapshotReply {
	frame := func(n int64, kind runv1.FrameKind) *runv1.Frame {
		return &runv1.Frame{Gen: r.gen, RunId: r.id.String(), N: n, Kind: kind, Tool: "list_files", CallId: "c1", MsgUids: []string{r.uid}}
	}
	last := frame(n, runv1.FrameKind_FRAME_KIND_TEXT)
	last.Text = text
	reply := &runv1.SnapshotReply{
		Reset_: true, RunId: r.id.String(), MsgUids: []string{r.uid},
		Frames: []*runv1.Frame{frame(1, runv1.FrameKind_FRAME_KIND_START), frame(3, runv1.FrameKind_FRAME_KIND_TOOL_STARTED), last},
	}
	return func(*runv1.SnapshotRequest) *runv1.SnapshotReply { return reply }
}

func (r *run) id1() string { return `{"run_id":"` + r.id.String() + `"}` }

func (d *api) events(r *run, pairs ...string) *stream {
	d.t.Helper()
	return d.open("/v1/runs/"+r.message()+"/events", pairs...)
}

func TestEvents_ShowTheWholeLifeOfARun(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "")
	s := d.events(r)
	require.Equal(t, "text/event-stream", s.resp.Header.Get("Content-Type"))
	require.Equal(t, "no-cache, no-transform", s.resp.Header.Get("Cache-Control"))
	require.Equal(t, "no", s.resp.Header.Get("X-Accel-Buffering"))

	r.begin()
	r.start()
	r.text("let me ")
	r.text("see")
	r.step()
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_STARTED, "", "")
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_PROGRESS, "half", "")
	r.tool(runv1.FrameKind_FRAME_KIND_TOOL_FINISHED, "", "ok")
	r.text("two \"files\"\n")
	s.expect(
		sse{"1:1", "run_started", r.id1()},
		sse{"1:2", "text", `{"text":"let me "}`},
		sse{"1:3", "text", `{"text":"see"}`},
		sse{"1:4", "step", `{}`},
		sse{"1:5", "tool_started", `{"tool":"list_files","call_id":"c1"}`},
		sse{"1:6", "tool_progress", `{"tool":"list_files","call_id":"c1","text":"half"}`},
		sse{"1:7", "tool_finished", `{"tool":"list_files","call_id":"c1","outcome":"ok"}`},
		sse{"1:8", "text", `{"text":"two \"files\"\n"}`},
	)
	r.finish(store.RunDone, "two \"files\"", "and more")
	r.end()
	s.expectEnd("done", r.final("two \"files\"\n\nand more"))

	byRun := d.open("/v1/runs/" + r.id.String() + "/events")
	byRun.expectEnd("done", r.final("two \"files\"\n\nand more"))
}

func TestEvents_TellHowTheRunEnded(t *testing.T) {
	t.Parallel()
	for state, name := range map[store.RunState]string{store.RunFailed: "failed", store.RunCancelled: "cancelled"} {
		d := setup(t)
		d.say("x")
		r := d.admit(1, "").begin()
		s := d.events(r)
		r.start()
		s.expect(sse{"1:1", "run_started", r.id1()})
		r.finish(state, "Sorry.")
		r.end()
		s.expectEnd(name, r.final("Sorry."))
	}
}

func TestEvents_FinalComesFromCommittedRowsOnly(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	r.end() // as if the store did not know yet
	r.n--
	s.expect(sse{"1:1", "run_started", r.id1()})
	r.finish(store.RunDone, "the answer") // and no frame tells it
	s.expectEnd("done", r.final("the answer"))
}

func TestEvents_LastFrameBringsTheEndAtOnce(t *testing.T) {
	t.Parallel()
	slow := timing()
	slow.Look = time.Hour
	d := setupWith(t, slow, noChange)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	s.expect(sse{"1:1", "run_started", r.id1()})
	r.finish(store.RunDone, "hi")
	r.end()
	s.expectEnd("done", r.final("hi"))
}

func TestEvents_ShowOnlyTheRunOfTheMessage(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("one")
	d.say("two")
	first := d.admit(1, "").begin()
	d.say("three")
	second := d.admit(2, "")
	s := d.events(second)

	first.start()
	first.text("of the first")
	first.finish(store.RunDone, "first answer")
	first.end()
	sess, err := d.Store.Session(t.Context(), second.skey)
	require.NoError(t, err)
	second.id, second.gen = sess.RunID, sess.Gen
	second.begin()
	second.start()
	second.text("of the second")
	gen := strconv.FormatInt(second.gen, 10)
	s.expect(sse{gen + ":1", "run_started", second.id1()}, sse{gen + ":2", "text", `{"text":"of the second"}`})
	second.finish(store.RunDone, "second answer")
	second.end()
	s.expectEnd("done", second.final("second answer"))
}

func TestEvents_JoinLateOverASnapshot(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	asked := r.snapshots(r.wholeSnapshot("so far", 5))
	s := d.events(r)
	require.Zero(t, (<-asked).GetGen())
	s.expect( // the whole has one place, that of its end
		sse{"", "run_started", r.id1()},
		sse{"", "tool_started", `{"tool":"list_files","call_id":"c1"}`},
		sse{"1:5", "text", `{"text":"so far"}`},
	)
	r.n = 3
	r.text("seen before")
	r.text("seen before")
	r.text(" and on")
	s.expect(sse{"1:6", "text", `{"text":" and on"}`})
}

func TestEvents_ResumeWithTheRestOfTheSameAttempt(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	asked := r.snapshots(func(*runv1.SnapshotRequest) *runv1.SnapshotReply {
		four, five := r.textFrame("four"), r.textFrame("five")
		four.N, five.N = 4, 5
		return &runv1.SnapshotReply{RunId: r.id.String(), MsgUids: []string{r.uid}, Frames: []*runv1.Frame{four, five}}
	})
	s := d.events(r, "Last-Event-ID", "1:3")
	req := <-asked
	require.Equal(t, [2]int64{1, 3}, [2]int64{req.GetGen(), req.GetN()})
	s.expect(sse{"1:4", "text", `{"text":"four"}`}, sse{"1:5", "text", `{"text":"five"}`})
	r.n = 4
	r.text("five again")
	r.text("six")
	s.expect(sse{"1:6", "text", `{"text":"six"}`})
	r.finish(store.RunDone, "all")
	s.expectEnd("done", r.final("all"))
}

func TestEvents_ResumeBehindAnotherAttemptBeginsAnew(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"1:900", "nonsense"} {
		d := setup(t)
		d.say("x")
		r := d.admit(1, "").begin()
		r.snapshots(r.wholeSnapshot("whole", 5))
		s := d.events(r, "Last-Event-ID", id)
		s.expect(
			sse{"", "reset", `{}`},
			sse{"", "run_started", r.id1()},
			sse{"", "tool_started", `{"tool":"list_files","call_id":"c1"}`},
			sse{"1:5", "text", `{"text":"whole"}`},
		)
	}
}

func TestEvents_HigherGenerationResets(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	r.text("half an ans")
	s.expect(sse{"1:1", "run_started", r.id1()}, sse{"1:2", "text", `{"text":"half an ans"}`})

	next := *r
	next.gen, next.n = r.gen+1, 0
	next.start()
	next.text("an answer")
	r.text("of the zombie")
	next.text("!")
	s.expect(
		sse{"", "reset", `{}`},
		sse{"2:1", "run_started", r.id1()},
		sse{"2:2", "text", `{"text":"an answer"}`},
		sse{"2:3", "text", `{"text":"!"}`},
	)
	r.finish(store.RunDone, "an answer!")
	s.expectEnd("done", r.final("an answer!"))
}

func TestEvents_ResumeOverAWorkerChange(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	first := d.events(r)
	r.start()
	r.text("half ")
	r.text("an ans")
	first.expect(sse{"1:1", "run_started", r.id1()}, sse{"1:2", "text", `{"text":"half "}`}, sse{"1:3", "text", `{"text":"an ans"}`})
	require.NoError(t, first.resp.Body.Close())

	// The client connects again while no worker holds the run: nobody answers the request for a snapshot.
	second := d.events(r, "Last-Event-ID", "1:3")
	r.text("wer of the zombie")
	next := *r
	next.gen, next.n = r.gen+1, 0
	next.start()
	next.text("another ")
	second.expect(
		sse{"", "reset", `{}`},
		sse{"2:1", "run_started", r.id1()},
		sse{"2:2", "text", `{"text":"another "}`},
	)
	require.NoError(t, second.resp.Body.Close())

	// And again behind the change: the new worker has the rest of its own attempt.
	rest := next.textFrame("answer")
	asked := next.snapshots(func(req *runv1.SnapshotRequest) *runv1.SnapshotReply {
		reply := &runv1.SnapshotReply{RunId: r.id.String(), MsgUids: []string{r.uid}}
		if req.GetGen() == 2 && req.GetN() == 2 {
			reply.Frames = []*runv1.Frame{rest}
		}
		return reply
	})
	third := d.events(r, "Last-Event-ID", "2:2")
	require.Equal(t, int64(2), (<-asked).GetGen())
	third.expect(sse{"2:3", "text", `{"text":"answer"}`})
	r.finish(store.RunDone, "another answer")
	next.end()
	third.expectEnd("done", r.final("another answer"))
}

func TestEvents_GapIsFilledByASnapshot(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	r.text("one")
	s.expect(sse{"1:1", "run_started", r.id1()}, sse{"1:2", "text", `{"text":"one"}`})
	three, four := r.textFrame("three"), r.textFrame("four")
	asked := r.snapshots(func(req *runv1.SnapshotRequest) *runv1.SnapshotReply {
		reply := &runv1.SnapshotReply{RunId: r.id.String(), MsgUids: []string{r.uid}}
		if req.GetN() == 2 {
			reply.Frames = []*runv1.Frame{three, four}
		}
		return reply
	})
	r.send(four)
	require.Equal(t, int64(2), (<-asked).GetN())
	s.expect(sse{"1:3", "text", `{"text":"three"}`}, sse{"1:4", "text", `{"text":"four"}`})
}

func TestEvents_RenewTheRequestForFrames(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Renew = 100 * time.Millisecond
	d := setupWith(t, short, noChange)
	d.say("x")
	r := d.admit(1, "").begin()
	asked := r.snapshots(func(*runv1.SnapshotRequest) *runv1.SnapshotReply {
		return &runv1.SnapshotReply{RunId: r.id.String(), MsgUids: []string{r.uid}}
	})
	s := d.events(r)
	r.start()
	s.expect(sse{"1:1", "run_started", r.id1()})
	await.True(t, testTimeout, func() bool { // workers stream for those who ask, and forget them after a minute
		select {
		case req := <-asked:
			return req.GetN() == 1
		default:
			return false
		}
	})
	r.text("goes on")
	s.expect(sse{"1:2", "text", `{"text":"goes on"}`})
}

func TestEvents_OfACommandAreItsNotice(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("/status")
	d.say("hello")
	command := d.admit(1, "Idle.")
	want := `{"run_id":"","text":"Idle."}`
	d.events(command).expectEnd("done", want)

	r := d.admit(2, "").begin() // it covers the command too
	r.seq = 2
	f := r.own.Fence
	_, err := d.Store.Finish(t.Context(), []store.Finish{{Fence: f, RunGen: r.own.FirstGen, From: 1, To: 2, State: store.RunDone, NextRunID: uuid.New()}})
	require.NoError(t, err)
	d.events(command).expectEnd("done", want)
	run := d.get("/v1/runs/" + command.message())
	require.Equal(t, "done", run.State)
	require.Equal(t, "Idle.", run.Text)
	require.Nil(t, run.RunID)
}

func TestEvents_WaitForTheAdmissionOfTheMessage(t *testing.T) {
	t.Parallel()
	long := timing()
	long.Admission = testTimeout
	d := setupWith(t, long, noChange)
	a := d.say("x")
	var s *stream
	var err error
	d.store.missed.Store(3)
	var connecting sync.WaitGroup
	connecting.Go(func() { s, err = d.connect(a.EventsURL) })
	r := d.admit(1, "").begin()
	r.finish(store.RunDone, "hi")
	connecting.Wait()
	require.NoError(t, err)
	s.expectEnd("done", r.final("hi"))
	require.Negative(t, d.store.missed.Load())
}

func TestEvents_UnknownIsNotFound(t *testing.T) {
	t.Parallel()
	d := setup(t)
	a := d.say("x")
	r := d.admit(1, "")
	other := accept.MessageID(r.skey, strings.Repeat("0", 32))
	for name, id := range map[string]string{
		"run": uuid.NewString(), "nonsense": "x", "upper case": strings.ToUpper(r.id.String()), "other notation": "urn:uuid:" + r.id.String(),
		"message": other, "session": accept.MessageID(strings.Repeat("a", 26), r.uid), "cut": a.MessageID[:40],
	} {
		require.Equal(t, http.StatusNotFound, d.get("/v1/runs/"+id+"/events").status, name)
		require.Equal(t, http.StatusNotFound, d.get("/v1/runs/"+id).status, name)
	}
}

func TestEvents_OfAnotherTenantAreNotFound(t *testing.T) {
	t.Parallel()
	d := withKeys(t)
	d.say("x", "Authorization", "Bearer ann-key")
	r := d.admit(1, "").begin()
	r.snapshots(r.wholeSnapshot("secret", 5))
	for _, path := range []string{"/v1/runs/" + r.message(), "/v1/runs/" + r.id.String(), "/v1/runs/" + r.message() + "/events", "/v1/runs/" + r.id.String() + "/events", "/v1/sessions/s"} {
		a := d.get(path, "Authorization", "Bearer bob-key")
		require.Equal(t, http.StatusNotFound, a.status, path)
		require.Equal(t, "not_found", a.problem(t).Code, path)
	}
	s := d.events(r, "Authorization", "Bearer ann-key")
	s.expect(sse{"", "run_started", r.id1()})
}

func TestEvents_StoreDown(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	d.store.down.Store(true)
	a := d.get("/v1/runs/" + r.message() + "/events")
	require.Equal(t, http.StatusServiceUnavailable, a.status, "nobody can say whose it is")
	require.Equal(t, "5", a.header.Get("Retry-After"))
	require.Equal(t, http.StatusServiceUnavailable, d.get("/v1/runs/"+r.id.String()).status)

	r.start()
	r.text("goes on")
	s.expect(sse{"1:1", "run_started", r.id1()}, sse{"1:2", "text", `{"text":"goes on"}`})
	r.finish(store.RunDone, "done")
	r.end()
	d.store.down.Store(false)
	s.expectEnd("done", r.final("done"))
}

func TestEvents_BrokerDownTellsTheEnd(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	s.expect(sse{"1:1", "run_started", r.id1()})
	require.NoError(t, d.Server.Shutdown())
	r.finish(store.RunDone, "the answer")
	s.expectEnd("done", r.final("the answer"))
}

func TestEvents_PingAQuietStream(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Ping = 20 * time.Millisecond
	d := setupWith(t, short, noChange)
	d.say("x")
	s := d.events(d.admit(1, ""))
	s.expect(sse{name: ": ping"}, sse{name: ": ping"})
}

func TestEvents_EndWhenTheServiceStops(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	s.expect(sse{"1:1", "run_started", r.id1()})
	begin := time.Now()
	servicetest.Stop(t, d.app)
	require.Less(t, time.Since(begin), 10*time.Second)
	_, ok := s.next()
	require.False(t, ok, "cut without a final event: the client resumes elsewhere")
}

func TestEvents_CutAClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Write = 100 * time.Millisecond
	d := setupWith(t, short, noChange)
	d.client.Transport = &http.Transport{DialContext: dialNarrow, DisableKeepAlives: true}
	d.say("x")
	r := d.admit(1, "").begin()
	s := d.events(r)
	r.start()
	s.expect(sse{"1:1", "run_started", r.id1()})
	listening := d.Server.Server().NumSubscriptions()
	for range 48 { // 12 MB, more than the buffers of the network hold
		r.text(strings.Repeat("x", 256<<10))
	}
	await.True(t, testTimeout/2, func() bool { return d.Server.Server().NumSubscriptions() == listening-1 })
}

// dialNarrow connects with a small buffer.
func dialNarrow(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return conn, conn.(*net.TCPConn).SetReadBuffer(4 << 10)
}

func TestEvents_KeepTheConnectionUsable(t *testing.T) {
	t.Parallel()
	short := timing()
	short.Write = 50 * time.Millisecond
	d := setupWith(t, short, noChange)
	d.say("x")
	r := d.admit(1, "").begin()
	r.finish(store.RunDone, "hi")
	for range 3 {
		d.events(r).expectEnd("done", r.final("hi"))
		deadline := time.Now().Add(2 * short.Write)
		await.True(t, testTimeout, func() bool { return time.Now().After(deadline) })
		require.Equal(t, "hi", d.get("/v1/runs/"+r.id.String()).Text)
	}
}

func TestRun_ShowsStateAndAnswer(t *testing.T) {
	t.Parallel()
	d := setup(t)
	d.say("x")
	require.Equal(t, http.StatusNotFound, d.get("/v1/runs/"+d.say("not admitted").MessageID).status)
	r := d.admit(1, "")
	a := d.get("/v1/runs/" + r.message())
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "queued", a.State)
	require.Nil(t, a.RunID)
	require.Equal(t, r.skey, a.Session)

	a = d.get("/v1/runs/" + r.id.String())
	require.Equal(t, "queued", a.State)
	require.Equal(t, r.id.String(), *a.RunID)
	require.Nil(t, a.StartedAt)
	for _, member := range []string{"run_id", "session", "state", "text", "usage", "started_at", "ended_at", "attempts"} {
		require.Contains(t, a.members, member)
	}
	require.NotContains(t, a.members, "error")

	r.begin()
	a = d.get("/v1/runs/" + r.id.String())
	require.Equal(t, "running", a.State)
	require.Equal(t, 1, a.Attempts)
	require.NotNil(t, a.StartedAt)
	require.Nil(t, a.EndedAt)
	require.Empty(t, a.Text)

	r.finish(store.RunFailed, "Sorry.")
	for _, id := range []string{r.id.String(), r.message()} {
		a = d.get("/v1/runs/" + id)
		require.Equal(t, "failed", a.State)
		require.Equal(t, "Sorry.", a.Text)
		require.Equal(t, `"the model is gone"`, string(a.Error))
		require.JSONEq(t, `{"input_tokens":3,"output_tokens":4}`, string(a.Usage))
		require.NotNil(t, a.EndedAt)
		require.Equal(t, r.id.String(), *a.RunID)
	}
}
