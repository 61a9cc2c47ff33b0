package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakemodel"
	"github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/webhook"
)

// recovery is far beyond any time in which the engine recovers: tests measure nothing.
const recovery = 120 * time.Second

// heldFirst is a model that keeps its first answer open, as a run in the middle of which something happens, and gives the
// others at once.
type heldFirst struct {
	*fakemodel.Server
	gate chan struct{}
}

func holdFirst(t *testing.T) *heldFirst {
	t.Helper()
	m := &heldFirst{gate: make(chan struct{})}
	m.Server = fakemodel.Start(t, func(n int, req fakemodel.Request) fakemodel.Reply {
		reply := fakemodel.Reply{Text: "answer " + newest(req)}
		if n == 0 {
			reply.Hold = m.gate
		}
		return reply
	})
	t.Cleanup(m.release)
	return m
}

// release lets the first answer end.
func (m *heldFirst) release() {
	select {
	case <-m.gate:
	default:
		close(m.gate)
	}
}

func (m *heldFirst) awaitRequests(t *testing.T, n int) {
	t.Helper()
	await.NoError(t, recovery, func() error {
		if got := len(m.Requests()); got < n {
			return fmt.Errorf("%d of %d requests have reached the model", got, n)
		}
		return nil
	})
}

// send accepts a message at the webhook.
func (s *stack) send(id, conversation, text string) {
	s.t.Helper()
	code, body := s.hook(id, conversation, text)
	require.Equal(s.t, http.StatusAccepted, code, body)
}

// awaitShown waits until a conversation has been shown exactly these texts.
func (s *stack) awaitShown(conversation string, want ...string) {
	s.t.Helper()
	await.NoError(s.t, recovery, func() error {
		if got := s.receiver.Shown(conversation); strings.Join(got, "\n") != strings.Join(want, "\n") {
			return fmt.Errorf("shown %q, want %q", got, want)
		}
		return nil
	})
}

// signal sends a signal to a process that goes on.
func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// owner returns the worker that runs the only running session.
func (s *stack) owner() *process { return s.named(s.ownerOf()) }

func TestRTR09_AWorkerIsKilledInTheMiddleOfARun(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{routers: 2, workers: 2, model: model.URL})
	s.send("m1", "c", "first")
	model.awaitRequests(t, 1)
	killed := time.Now()
	s.kill(s.owner())
	s.send("m2", "c", "second")
	s.awaitShown("c", "answer first", "answer second")
	t.Logf("answered %s after the kill", time.Since(killed).Round(time.Millisecond))
	require.Len(t, model.Requests(), 3, "the call in flight is repeated, nothing else")
	require.Equal(t, 1, s.count(`select count(*) from runs where attempts = 2`))
	require.Zero(t, s.count(`select sum(attempt) from sessions`), "the session begins anew")
	s.checkTiles()
}

func TestENG06_AWorkerPausesLongerThanItsLease(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{workers: 2, model: model.URL})
	s.send("m1", "c", "first")
	model.awaitRequests(t, 1)
	frozen := s.owner()
	frozen.signal(syscall.SIGSTOP)
	s.awaitShown("c", "answer first") // by the other worker
	gen := s.count(`select gen from sessions`)
	model.release() // what the zombie waited for is there
	frozen.signal(syscall.SIGCONT)
	frozen.awaitReady()
	s.send("m2", "c", "second")
	s.awaitShown("c", "answer first", "answer second")
	require.Equal(t, 2, s.count(`select count(*) from outbox`), "one reply each")
	require.Equal(t, 2, s.count(`select count(*) from messages where role = 'assistant'`), "the history is that of the second owner")
	require.Greater(t, s.count(`select gen from sessions`), gen)
	s.checkTiles()
}

// ledger is a server that remembers what was done to it; the first request is held.
type ledger struct {
	*httptest.Server
	calls atomic.Int32
	begun chan struct{}
	once  sync.Once
}

func startLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{begun: make(chan struct{})}
	hold := make(chan struct{})
	l.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l.calls.Add(1)
		l.once.Do(func() { close(l.begun) })
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() {
		close(hold)
		l.Close()
	})
	return l
}

func TestENG07_SIGKILLAfterASideEffectAndBeforeItsResultIsStored(t *testing.T) {
	t.Parallel()
	invoices := startLedger(t)
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		if result := req.Last("tool"); result != "" {
			return fakemodel.Reply{Text: "saw: " + result}
		}
		return fakemodel.Reply{Calls: []fakemodel.Call{{
			ID: "c1", Name: "http_request", Arguments: `{"method": "POST", "url": "` + invoices.URL + `/invoice"}`,
		}}}
	})
	s := start(t, options{workers: 2, model: model.URL, toolHosts: strings.TrimPrefix(invoices.URL, "http://")})
	s.send("m1", "c", "send the invoice")
	select {
	case <-invoices.begun:
	case <-time.After(recovery):
		require.Fail(t, "the tool was not called")
	}
	s.kill(s.owner())
	await.NoError(t, recovery, func() error {
		if shown := s.receiver.Shown("c"); len(shown) != 1 || !strings.Contains(shown[0], "outcome unknown") {
			return fmt.Errorf("shown %q", shown)
		}
		return nil
	})
	require.EqualValues(t, 1, invoices.calls.Load(), "an unsafe call is made once")
	require.Equal(t, []string{"unknown"}, s.texts(`select state from tool_calls`))
	require.Len(t, model.Requests(), 2)
	s.checkTiles()
}

func TestENG07_TheDoorbellOfAStoredReplyIsLost(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{model: model.URL})
	s.send("m1", "c", "first")
	model.awaitRequests(t, 1)
	require.NoError(t, s.named("egress-0").terminate())
	model.release()
	await.NoError(t, recovery, func() error {
		if s.count(`select count(*) from outbox where state = 'pending'`) != 1 {
			return errors.New("the reply is not stored")
		}
		return nil
	})
	require.NoError(t, s.nats.Restart()) // OUT is in memory: the doorbell is gone
	s.run("egress", 1).awaitReady()
	s.awaitShown("c", "answer first")
	require.Len(t, model.Requests(), 1, "no model is asked again")
	s.checkTiles()
}

func TestRouterFrozen_AnotherOneAdmitsAndTheZombieWritesNothing(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, (&echo{}).reply)
	s := start(t, options{routers: 2, workers: 2, model: model.URL})
	const conversations = 12
	for c := range conversations {
		s.send(fmt.Sprintf("a%d", c), fmt.Sprintf("c%02d", c), fmt.Sprintf("c%02d/0", c))
	}
	s.named("router-0").signal(syscall.SIGSTOP)
	for c := range conversations {
		s.send(fmt.Sprintf("b%d", c), fmt.Sprintf("c%02d", c), fmt.Sprintf("c%02d/1", c))
	}
	s.awaitReplies(2*conversations, recovery)
	s.named("router-0").signal(syscall.SIGCONT)
	for c := range conversations {
		s.send(fmt.Sprintf("d%d", c), fmt.Sprintf("c%02d", c), fmt.Sprintf("c%02d/2", c))
	}
	s.awaitReplies(3*conversations, recovery)
	for c := range conversations {
		name := fmt.Sprintf("c%02d", c)
		require.Equal(t, []string{"answer " + name + "/0", "answer " + name + "/1", "answer " + name + "/2"}, s.receiver.Shown(name))
	}
	s.checkTiles()
}

func TestRedisLosesItsData_RunsGoOnUnderANewGeneration(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{workers: 2, model: model.URL})
	s.send("m1", "c", "first")
	model.awaitRequests(t, 1)
	gen := s.count(`select gen from sessions`)
	require.NoError(t, s.redis.FlushAll())
	await.NoError(t, recovery, func() error {
		if now := s.count(`select gen from sessions`); now <= gen {
			return fmt.Errorf("generation %d is still %d", gen, now)
		}
		return nil
	})
	model.release()
	s.awaitShown("c", "answer first")
	require.Len(t, model.Requests(), 1, "the run was never taken away from its worker")
	require.Equal(t, 1, s.count(`select count(*) from outbox`))
	s.checkTiles()
}

func TestRedisDown_RunsGoOnAndNewOnesBegin(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{routers: 2, workers: 2, model: model.URL})
	s.send("m1", "c", "first")
	model.awaitRequests(t, 1)
	s.redis.Kill()
	// Partitions stay with the routers that own them, and are shared out anew only once Redis is back.
	for n := range 8 {
		conversation := fmt.Sprintf("d%d", n)
		s.send(conversation, conversation, "hello "+conversation)
		s.awaitShown(conversation, "answer hello "+conversation)
	}
	// Longer than a lease: the run is held by what Postgres says.
	longerThanALease(t)
	require.Equal(t, 1, s.count(`select count(*) from sessions where state = 'running'`))
	model.release()
	s.awaitShown("c", "answer first")
	require.Len(t, model.Requests(), 9, "nothing was taken over")
	require.NoError(t, s.redis.RestartEmpty())
	s.send("m2", "c", "second")
	s.awaitShown("c", "answer first", "answer second")
	s.checkTiles()
}

// longerThanALease lets more time pass than a lease lasts: the fault itself takes that long.
func longerThanALease(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	<-ctx.Done()
}

func TestBrokerRestarts_UnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, (&echo{hold: 300 * time.Millisecond}).reply)
	s := start(t, options{routers: 2, workers: 2, egress: 2, model: model.URL})
	s.loadWhile(func() { require.NoError(t, s.nats.Restart()) })
}

func TestPostgresStopsAtOnce_UnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	model := fakemodel.Start(t, (&echo{hold: 300 * time.Millisecond}).reply)
	s := start(t, options{routers: 2, workers: 2, egress: 2, model: model.URL})
	s.loadWhile(func() {
		require.NoError(t, s.postgres.Kill())
		require.NoError(t, s.postgres.Restart(t.Context()))
	})
}

// loadWhile sends messages of many conversations, injects a fault in the middle and checks that each message was answered
// once and in order. What is refused meanwhile is sent again, as platforms do.
func (s *stack) loadWhile(fault func()) {
	s.t.Helper()
	const conversations, each = 20, 6
	for n := range each {
		for c := range conversations {
			conversation := fmt.Sprintf("c%02d", c)
			text := fmt.Sprintf("%s/%d", conversation, n)
			await.NoError(s.t, recovery, func() error {
				if code, body := s.hook("id-"+text, conversation, text); code != http.StatusAccepted {
					return fmt.Errorf("%d %s", code, body)
				}
				return nil
			})
		}
		if n == each/2 {
			fault()
		}
	}
	s.awaitReplies(conversations*each, recovery)
	for c := range conversations {
		var want []string
		for n := range each {
			want = append(want, fmt.Sprintf("answer c%02d/%d", c, n))
		}
		require.Equal(s.t, want, s.receiver.Shown(fmt.Sprintf("c%02d", c)))
	}
	s.checkTiles()
}

func TestEgressKilled_BetweenSendAndMark(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	s := start(t, options{model: model.URL})
	s.receiver.Answer(webhook.Answer{Hang: true, Keep: true}) // it arrives, and the sender never learns of it
	s.send("m1", "c", "first")
	model.release()
	await.NoError(t, recovery, func() error {
		if len(s.receiver.Transcript()) == 0 {
			return errors.New("nothing was sent")
		}
		return nil
	})
	s.kill(s.named("egress-0"))
	s.run("egress", 1).awaitReady()
	await.NoError(t, recovery, func() error { // once the claim of the dead one has expired
		if s.count(`select count(*) from outbox where state = 'sent' and maybe >= 1`) != 1 {
			return errors.New("the reply is not settled")
		}
		return nil
	})
	sent := s.receiver.Transcript()
	require.GreaterOrEqual(t, len(sent), 2)
	for _, r := range sent {
		require.Equal(t, sent[0].ID, r.ID, "a repetition has the same id, by which the platform drops it")
	}
	s.awaitShown("c", "answer first")
	s.checkTiles()
}

func TestENG03_OneBusySessionDoesNotStarveTheOthers(t *testing.T) {
	t.Parallel()
	const waiting = 150 // the cap of a conversation is 200
	gate := make(chan struct{})
	model := fakemodel.Start(t, func(_ int, req fakemodel.Request) fakemodel.Reply {
		reply := fakemodel.Reply{Text: "answer " + newest(req)}
		if newest(req) == "hold" {
			reply.Hold = gate
		}
		return reply
	})
	s := start(t, options{workers: 2, model: model.URL})
	s.send("a", "busy", "hold")
	want := []string{"answer hold"}
	for n := range waiting {
		s.send(fmt.Sprintf("a%d", n), "busy", fmt.Sprintf("later %d", n))
		want = append(want, fmt.Sprintf("answer later %d", n))
	}
	s.send("b", "other", "hello")
	s.awaitShown("other", "answer hello")
	require.Empty(t, s.receiver.Shown("busy"), "the busy one is still at its first message")
	close(gate)
	s.awaitShown("busy", want...)
	s.checkTiles()
}

func TestIngressKilled_APlatformThatRetriesIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	model := holdFirst(t)
	model.release()
	s := start(t, options{model: model.URL})
	s.send("m1", "c", "first")
	s.kill(s.named("ingress-0")) // before the platform has read the answer, as it believes
	p := s.run("ingress", 1)
	p.awaitReady()
	s.send("m1", "c", "first")
	s.send("m2", "c", "second")
	s.awaitShown("c", "answer first", "answer second")
	require.Equal(t, 2, s.count(`select count(*) from inbox`))
	s.checkTiles()
}
