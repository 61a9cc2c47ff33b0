package app

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

func slash(platform, chat, id, name, args string) *event.Message {
	m := message(platform, chat, id)
	m.Kind, m.Command = event.KindCommand, &event.Command{Name: name, Args: args}
	return m
}

// awaitState waits until a session is in a state and returns it.
func (c *cluster) awaitState(t *testing.T, skey string, want store.SessionState) store.Session {
	t.Helper()
	var s store.Session
	await.NoError(t, patience, func() error {
		var err error
		if s, err = c.store.Session(t.Context(), skey); err == nil && s.State != want {
			err = fmt.Errorf("session is %s", s.State)
		}
		return err
	})
	return s
}

// claim takes the queued run of a session as a worker does that holds its lease.
func (c *cluster) claim(t *testing.T, skey, owner string) store.Claimed {
	t.Helper()
	run := c.claimAlone(t, skey, owner)
	c.hold(t, run)
	return run
}

// hold is the lease of a run.
func (c *cluster) hold(t *testing.T, run store.Claimed) {
	t.Helper()
	held := lease.Lease{SKey: run.SKey, Gen: run.Gen, RunID: run.RunID.String(), Holder: run.Owner}
	require.NoError(t, c.redis.Set(fmt.Sprintf("l:{%s}", run.SKey), held.Value()))
}

// claimAlone is a claim of a worker that holds no lease and never says that it lives.
func (c *cluster) claimAlone(t *testing.T, skey, owner string) store.Claimed {
	t.Helper()
	s := c.awaitState(t, skey, store.Queued)
	claimed, err := c.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{SKey: skey, Gen: s.Gen, RunID: s.RunID, Owner: owner}}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	return claimed[0]
}

// finish ends a run of one message as a worker does.
func (c *cluster) finish(t *testing.T, r store.Claimed, state store.RunState) store.FinishResult {
	t.Helper()
	got, err := c.store.Finish(t.Context(), []store.Finish{{
		Fence: r.Fence, RunGen: r.FirstGen, From: r.DoneSeq + 1, To: r.Inbox[0].Seq, State: state, NextRunID: uuid.New(),
	}})
	require.NoError(t, err)
	return got[0]
}

// signals listens to what the worker of a session is told.
func (c *cluster) signals(t *testing.T, skey string) <-chan bus.Msg {
	t.Helper()
	ch := make(chan bus.Msg, 16)
	sub, err := c.bus.Listen(bus.ControlSubject(skey), ch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	return ch
}

func receive(t *testing.T, ch <-chan bus.Msg) *runv1.Control {
	t.Helper()
	var signal runv1.Control
	await.True(t, patience, func() bool {
		select {
		case m := <-ch:
			require.NoError(t, proto.Unmarshal(m.Data, &signal))
			return true
		default:
			return false
		}
	}, "no signal")
	return &signal
}

func (c *cluster) replies(t *testing.T, run uuid.UUID) []string {
	t.Helper()
	replies, err := c.store.RunReplies(t.Context(), run)
	require.NoError(t, err)
	var texts []string
	for _, r := range replies {
		var parts []channel.Part
		require.NoError(t, json.Unmarshal(r.Parts, &parts))
		texts = append(texts, parts[0].Markdown)
	}
	return texts
}

func TestRTR05_StopThroughAnotherRouterWhileNobodyWorks(t *testing.T) {
	t.Parallel()
	const sessions = 12
	c := newCluster(t)
	a := c.router(t, "a", nil)
	runs := map[string]uuid.UUID{}
	for n := range sessions {
		m := message("webhook", fmt.Sprint("chat", n), "1")
		c.publish(t, m)
		runs[m.SKey] = c.awaitState(t, m.SKey, store.Queued).RunID
	}
	b, d := c.router(t, "b", nil), c.router(t, "d", nil)
	requireShared(t, a, b, d)
	for n := range sessions {
		c.publish(t, slash("webhook", fmt.Sprint("chat", n), "2", "stop", ""))
	}
	for skey, id := range runs {
		c.awaitState(t, skey, store.Idle)
		run, err := c.store.Run(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, store.RunCancelled, run.State)
		require.Equal(t, []string{"Stopped."}, c.replies(t, id), "one confirmation")
	}
	rung := map[string]bool{}
	for range sessions {
		var bell deliveryv1.Doorbell
		require.NoError(t, proto.Unmarshal(c.fetch(t, bus.OutQueue("webhook")).Data, &bell))
		require.EqualValues(t, 1, bell.GetOutSeq())
		rung[bell.GetSkey()] = true
	}
	require.Len(t, rung, sessions)

	for n := range sessions {
		m := message("webhook", fmt.Sprint("chat", n), "3")
		c.publish(t, m)
		require.EqualValues(t, 3, c.claim(t, m.SKey, "w/1").Inbox[1].Seq, "the next message runs normally")
	}
}

func TestRTR06_StopOvertakesTheQueue(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	first, second, third := message("webhook", "chat", "1"), message("webhook", "chat", "2"), message("webhook", "chat", "3")
	signals := c.signals(t, first.SKey)
	c.publish(t, first)
	run := c.claim(t, first.SKey, "w/1")
	c.publish(t, second)
	c.publish(t, third)
	stop := slash("webhook", "chat", "4", "stop", "")
	c.publish(t, stop)
	got := receive(t, signals)
	require.True(t, proto.Equal(&runv1.Control{
		Kind: runv1.ControlKind_CONTROL_KIND_STOP, Seq: 4, Gen: run.Gen, RunId: run.RunID.String(),
	}, got))
	require.Equal(t, store.KindStop, c.admission(t, stop).Kind, "no prompt of a later run")
	require.Equal(t, store.FinishStopped, c.finish(t, run, store.RunDone).Outcome)
}

func TestStopAll_OfAQueuedRunDropsWhatWaits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first := message("webhook", "chat", "1")
	c.publish(t, first)
	c.publish(t, message("webhook", "chat", "2"))
	c.publish(t, message("webhook", "chat", "3"))
	c.publish(t, slash("webhook", "chat", "4", "stop", "all"))
	c.router(t, "a", nil)
	var run uuid.UUID
	await.True(t, patience, func() bool {
		run = c.admission(t, first).Run.ID
		return run != uuid.Nil
	})
	require.Equal(t, []string{"Stopped. 2 waiting messages were dropped."}, c.replies(t, run))
	require.Equal(t, store.Idle, c.awaitState(t, first.SKey, store.Idle).State)
}

// pause is a store that stands still after an admission was committed.
type pause struct {
	store.Store
	armed     atomic.Bool
	committed chan struct{}
	goOn      chan struct{}
}

func (p *pause) Admit(ctx context.Context, adm store.Admission) ([]store.Admitted, error) {
	res, err := p.Store.Admit(ctx, adm)
	if p.armed.CompareAndSwap(true, false) {
		close(p.committed)
		<-p.goOn
	}
	return res, err
}

func TestRTR07_StopOfARunThatEndsMeanwhileNamesNoOther(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := &pause{Store: c.store, committed: make(chan struct{}), goOn: make(chan struct{})}
	c.router(t, "a", func(b *backends.Backends) { b.Store = p })
	first, second := message("webhook", "chat", "1"), message("webhook", "chat", "2")
	signals := c.signals(t, first.SKey)
	c.publish(t, first)
	run1 := c.claim(t, first.SKey, "w/1")
	c.publish(t, second)
	c.admission(t, second)

	p.armed.Store(true)
	c.publish(t, slash("webhook", "chat", "3", "stop", ""))
	<-p.committed // the stop has found run 1, and its signal is not sent yet
	require.Equal(t, store.FinishStopped, c.finish(t, run1, store.RunDone).Outcome)
	require.Equal(t, store.Finished, c.finish(t, run1, store.RunCancelled).Outcome)
	run2 := c.claim(t, first.SKey, "w/2")
	close(p.goOn)

	require.Equal(t, run1.RunID.String(), receive(t, signals).GetRunId())
	s := c.awaitState(t, first.SKey, store.Running)
	require.Equal(t, run2.RunID, s.RunID)
	require.Equal(t, uuid.Nil, s.StopRun, "run 2 is not stopped")

	c.publish(t, slash("webhook", "chat", "4", "stop", ""))
	require.Equal(t, run2.RunID.String(), receive(t, signals).GetRunId(), "a second stop ends run 2")
}

func TestRTR07_StopThatComesAfterTheEndLeavesTheRunFinished(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	m := message("webhook", "chat", "1")
	signals := c.signals(t, m.SKey)
	c.publish(t, m)
	run := c.claim(t, m.SKey, "w/1")
	require.Equal(t, store.Finished, c.finish(t, run, store.RunDone).Outcome)
	stop := slash("webhook", "chat", "2", "stop", "")
	c.publish(t, stop)
	require.Contains(t, string(c.admission(t, stop).Notice), "Nothing is running.")
	c.fetch(t, bus.OutQueue("webhook")) // it is rung after the signals
	got, err := c.store.Run(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunDone, got.State)
	require.Empty(t, signals)
}

func TestNew_FencesTheWorkerOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	m, reset := message("webhook", "chat", "1"), slash("webhook", "chat", "2", "new", "")
	signals := c.signals(t, m.SKey)
	c.publish(t, m)
	run := c.claim(t, m.SKey, "w/1")
	c.publish(t, reset)
	got := receive(t, signals)
	require.Equal(t, runv1.ControlKind_CONTROL_KIND_FENCED, got.GetKind())
	require.Greater(t, got.GetGen(), run.Gen)
	require.Equal(t, store.FinishFenced, c.finish(t, run, store.RunDone).Outcome)
	require.Contains(t, string(c.admission(t, reset).Notice), "New conversation.")
	require.NotEqual(t, run.SessionID, c.awaitState(t, m.SKey, store.Idle).SessionID)
}

func TestING08_MessagesUnderTheNewIdOfAChatJoinItsSession(t *testing.T) {
	t.Parallel()
	const oldChat, newChat = "-4518000001", "-1002470000001"
	c := newCluster(t)
	for _, id := range []string{"a", "b", "d"} {
		c.router(t, id, nil)
	}
	remember, ask := message("telegram", oldChat, "150"), message("telegram", newChat, "2")
	c.publish(t, remember)
	run := c.claim(t, remember.SKey, "w/1")
	_, err := c.store.LearnAlias(t.Context(), store.Address{Tenant: "default", Platform: "telegram", Account: "acc", ID: newChat}, oldChat)
	require.NoError(t, err)
	c.publish(t, ask)
	require.Equal(t, store.KindMoved, c.admission(t, ask).Kind)

	there := *ask
	there.SKey = remember.SKey
	joined := c.admission(t, &there)
	require.Equal(t, store.KindUser, joined.Kind)
	require.EqualValues(t, 2, joined.Seq)
	require.Equal(t, run.RunID, c.awaitState(t, remember.SKey, store.Running).RunID, "it waits for the active run")
	var stored event.Message
	require.NoError(t, json.Unmarshal(joined.Body, &stored))
	require.Equal(t, newChat, stored.ReplyTo.ChatID, "the answer goes to the new id")
	require.Equal(t, store.Finished, c.finish(t, run, store.RunDone).Outcome)
	next := c.claim(t, remember.SKey, "w/2")
	require.Equal(t, run.SessionID, next.SessionID, "it sees the history of the old id")
}

func TestRouter_TellsOperatorsOfDeadLetters(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	_, err := c.bus.Publish(t.Context(), bus.Msg{
		Subject: bus.IngestSubject("default", message("webhook", "chat", "1").SKey), ID: "broken", Data: []byte{0xff},
	})
	require.NoError(t, err)
	msg := c.fetch(t, bus.Queue{Stream: bus.StreamDeadLetter, Durable: "test", Filter: "dlq.ingress.*", AckWait: patience, MaxAckPending: 10})
	require.Equal(t, "dlq.ingress.unknown", msg.Subject)
	var letter struct {
		ID     string `json:"id"`
		MsgUID string `json:"msg_uid"`
		Reason string `json:"reason"`
	}
	require.NoError(t, json.Unmarshal(msg.Data, &letter))
	require.Equal(t, "broken", letter.MsgUID)
	require.Contains(t, letter.Reason, "decode message event")
	require.Equal(t, c.store.Letters()[0].ID.String(), letter.ID)
}
