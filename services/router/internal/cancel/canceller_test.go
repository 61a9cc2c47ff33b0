package cancel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/router/internal/cancel"
	"github.com/hermes-runtime/hermes/services/router/internal/dispatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder takes what a canceller tells.
type recorder struct {
	mu         sync.Mutex
	runs       []dispatch.Run
	deliveries []dispatch.Delivery
	signals    []dispatch.Signal
	events     []event.Lifecycle
}

func (r *recorder) Ring(_ context.Context, runs []dispatch.Run, deliveries []dispatch.Delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs, r.deliveries = append(r.runs, runs...), append(r.deliveries, deliveries...)
}

func (r *recorder) Signal(_ context.Context, s dispatch.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.signals = append(r.signals, s)
}

func (r *recorder) Emit(ev event.Lifecycle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, ev)
}

// interposed is a store in front of which a test stands.
type interposed struct {
	*memstore.Store
	// before is called before a run is ended.
	before func() error
	tries  int
}

func (s *interposed) StopQueued(ctx context.Context, q store.QueuedStop) (store.FinishResult, error) {
	s.tries++
	if s.before != nil {
		if err := s.before(); err != nil {
			return store.FinishResult{}, err
		}
	}
	return s.Store.StopQueued(ctx, q)
}

// bundle is a session with a canceller.
type bundle struct {
	*cancel.Canceller
	store   *interposed
	rec     *recorder
	skey    string
	address event.Address
	n       int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{
		store: &interposed{Store: memstore.New()}, rec: &recorder{}, skey: session.SKey("default", "chat"),
		address: event.Address{Platform: "telegram", Account: "bot", ChatID: "111"},
	}
	b.Canceller = cancel.New(cancel.Deps{Store: b.store, Bells: b.rec, Events: b.rec, Logger: slog.New(slog.DiscardHandler)})
	return b
}

// admit stores a row: a message, a command, or a stop with its arguments.
func (b *bundle) admit(t *testing.T, kind store.InboxKind, args string) store.Admitted {
	t.Helper()
	b.n++
	body, err := json.Marshal(event.Message{Command: &event.Command{Name: "stop", Args: args}})
	require.NoError(t, err)
	got, err := b.store.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: b.skey, Tenant: "default", SessionKey: "chat", AgentID: "helper", RunClass: "fast", UID: fmt.Sprint("uid", b.n), Kind: kind,
		Body: body, SessionID: uuid.New(), RunID: uuid.New(), Traceparent: fmt.Sprint("trace", b.n),
		WantsRun: kind == store.KindUser, Stop: kind == store.KindStop,
	}}})
	require.NoError(t, err)
	return got[0]
}

func (b *bundle) stop(t *testing.T, args string) cancel.Stop {
	t.Helper()
	res := b.admit(t, store.KindStop, args)
	return cancel.Stop{
		SKey: b.skey, RunID: res.StopRun, Seq: res.Seq, Gen: res.Gen, ReplyTo: b.address, Traceparent: fmt.Sprint("trace", b.n),
	}
}

// cancel passes stops on and waits until they are dealt with.
func (b *bundle) cancel(t *testing.T, stops ...cancel.Stop) {
	t.Helper()
	for _, s := range stops {
		b.Cancel(t.Context(), s)
	}
	require.NoError(t, b.Start(t.Context()))
	require.NoError(t, b.Stop(t.Context()), "a stop deals with what is queued")
}

func (b *bundle) session(t *testing.T) store.Session {
	t.Helper()
	s, err := b.store.Session(t.Context(), b.skey)
	require.NoError(t, err)
	return s
}

func (b *bundle) claim(t *testing.T) store.Claimed {
	t.Helper()
	s := b.session(t)
	claimed, err := b.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: b.skey, Gen: s.Gen, RunID: s.RunID, Owner: "w/1"}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	return claimed[0]
}

func (b *bundle) confirmation(t *testing.T, run uuid.UUID) string {
	t.Helper()
	replies, err := b.store.RunReplies(t.Context(), run)
	require.NoError(t, err)
	require.Len(t, replies, 1)
	var parts []channel.Part
	require.NoError(t, json.Unmarshal(replies[0].Parts, &parts))
	require.True(t, parts[0].Notice)
	return parts[0].Markdown
}

func TestRTR05_StopOfAQueuedRunNeedsNoWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admit(t, store.KindUser, "")
	stop := b.stop(t, "")
	b.cancel(t, stop)

	run, err := b.store.Run(t.Context(), first.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunCancelled, run.State)
	require.EqualValues(t, 1, run.FromSeq)
	require.EqualValues(t, 1, run.ToSeq)
	require.Equal(t, "Stopped.", b.confirmation(t, first.RunID))
	require.Equal(t, store.Idle, b.session(t).State)
	require.Empty(t, b.rec.runs)
	require.Empty(t, b.rec.signals)
	require.Equal(t, []dispatch.Delivery{{SKey: b.skey, Platform: "telegram", OutSeq: 1, Traceparent: "trace2"}}, b.rec.deliveries)
	require.Equal(t, []event.Lifecycle{{
		Type: event.RunFinished, Tenant: "default", SKey: b.skey, MsgUID: "uid1", RunID: first.RunID.String(), Gen: first.Gen,
		Profile: "helper", Address: b.address, Outcome: "cancelled",
	}}, b.rec.events)
	claimed, err := b.store.ClaimDeliveries(t.Context(), "egress", []store.DeliveryClaim{{SKey: b.skey, OutSeq: 1}})
	require.NoError(t, err)
	require.JSONEq(t, `{"platform":"telegram","account":"bot","chat_id":"111"}`, string(claimed[0].Target))
}

func TestCancel_KeepsTheMessagesThatWaitAndRingsTheNext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admit(t, store.KindUser, "")
	b.admit(t, store.KindCommand, "")
	b.admit(t, store.KindUser, "")
	b.admit(t, store.KindUser, "")
	b.cancel(t, b.stop(t, "please"))

	require.Equal(t, "Stopped. 2 messages are waiting.", b.confirmation(t, first.RunID))
	s := b.session(t)
	require.Equal(t, store.Queued, s.State)
	require.EqualValues(t, 1, s.DoneSeq)
	require.Equal(t, []dispatch.Run{{SKey: b.skey, Tenant: "default", Class: "fast", Gen: s.Gen, RunID: s.RunID, Traceparent: "trace3"}}, b.rec.runs)
	require.EqualValues(t, 2, b.claim(t).Inbox[0].Seq)
}

func TestCancel_OfAllDropsTheMessagesBeforeTheStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admit(t, store.KindUser, "")
	b.admit(t, store.KindUser, "")
	b.admit(t, store.KindUser, "")
	stop := b.stop(t, "all")
	b.admit(t, store.KindUser, "")
	b.cancel(t, stop)

	require.Equal(t, "Stopped. 2 waiting messages were dropped. 1 message is waiting.", b.confirmation(t, first.RunID))
	require.EqualValues(t, 4, b.session(t).DoneSeq)
	require.Equal(t, "trace5", b.rec.runs[0].Traceparent)
	sub, err := b.store.Submission(t.Context(), b.skey, "uid2")
	require.NoError(t, err)
	require.Equal(t, first.RunID, sub.Run.ID, "what was dropped belongs to the run that was stopped")
}

func TestCancel_ASecondStopOfARunIsNotConfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.admit(t, store.KindUser, "")
	b.admit(t, store.KindUser, "")
	b.cancel(t, b.stop(t, ""), b.stop(t, ""))
	require.Equal(t, "Stopped. 1 message is waiting.", b.confirmation(t, first.RunID))
	s := b.session(t)
	require.Equal(t, store.Queued, s.State, "the next run is not concerned")
	require.NotEqual(t, s.RunID, s.StopRun)
	require.Len(t, b.rec.deliveries, 1)
	require.Equal(t, 1, b.store.tries)
}

func TestCancel_SignalsTheWorkerThatHasClaimedTheRun(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(t *testing.T, b *bundle){
		"before the stop is looked at": func(t *testing.T, b *bundle) { t.Helper(); b.claim(t) },
		"at the last moment": func(t *testing.T, b *bundle) {
			t.Helper()
			b.store.before = func() error { b.claim(t); return nil }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.admit(t, store.KindUser, "")
			stop := b.stop(t, "")
			meanwhile(t, b)
			b.cancel(t, stop)
			require.Equal(t, []dispatch.Signal{{
				SKey: b.skey, Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: 2, Gen: first.Gen, RunID: first.RunID,
			}}, b.rec.signals)
			require.Equal(t, store.Running, b.session(t).State)
			require.Empty(t, b.rec.deliveries)
			require.Empty(t, b.rec.events, "the worker tells")
		})
	}
}

func TestCancel_CompletesWhatNobodyDelivers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.address = event.Address{Platform: event.PlatformAPI}
	first := b.admit(t, store.KindUser, "")
	b.cancel(t, b.stop(t, ""))
	require.Equal(t, "Stopped.", b.confirmation(t, first.RunID))
	require.Empty(t, b.rec.deliveries)
	require.Len(t, b.rec.events, 2)
	require.Equal(t, event.ProcessingCompleted, b.rec.events[1].Type)
	require.Equal(t, "cancelled", b.rec.events[1].Outcome)
}

func TestCancel_TriesAgainWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		begin := time.Now()
		b.store.before = func() error {
			if time.Since(begin) < 5*time.Second {
				return fmt.Errorf("connect: %w", store.ErrUnavailable)
			}
			return nil
		}
		first := b.admit(t, store.KindUser, "")
		require.NoError(t, b.Start(t.Context()))
		b.Cancel(t.Context(), b.stop(t, ""))
		<-time.After(20 * time.Second)
		synctest.Wait()
		require.Equal(t, "Stopped.", b.confirmation(t, first.RunID))
		require.Less(t, b.store.tries, 30)
		require.NoError(t, b.Stop(t.Context()))
	})
}

func TestCancel_LeavesTheRunToAWorkerAtLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.store.before = func() error { return store.ErrUnavailable }
		b.admit(t, store.KindUser, "")
		require.NoError(t, b.Start(t.Context()))
		b.Cancel(t.Context(), b.stop(t, ""))
		<-time.After(2 * time.Minute)
		synctest.Wait()
		tries := b.store.tries
		require.Greater(t, tries, 3)
		<-time.After(time.Minute)
		require.Equal(t, tries, b.store.tries)
		require.Equal(t, store.Queued, b.session(t).State)
		require.NoError(t, b.Stop(t.Context()))
	})
}

func TestCancel_NeverWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admit(t, store.KindUser, "")
	stop := b.stop(t, "")
	for range 1000 { // nobody takes them: it is not started
		b.Cancel(t.Context(), stop)
	}
	b.cancel(t)
	require.Equal(t, 1, b.store.tries)
	require.Equal(t, store.Idle, b.session(t).State)
}
