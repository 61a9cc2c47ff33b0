package egresstest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
)

// Run is a run as its worker sees it.
type Run struct {
	SKey string
	ID   uuid.UUID

	env    *Env
	t      *testing.T
	target event.Address
	fence  store.Fence
	first  int64

	mu     sync.Mutex
	gen    int64
	frames []*runv1.Frame
}

// Begin admits a message of a chat and claims its run. Nothing is told yet.
func (e *Env) Begin(chat string) *Run { return e.BeginAt(Address(chat)) }

// BeginAt is Begin with an address.
func (e *Env) BeginAt(target event.Address) *Run {
	e.t.Helper()
	sessionKey, skey := keys(target.ChatID)
	r := &Run{SKey: skey, ID: newID(), env: e, t: e.t, target: target}
	admitted, err := e.Store.Admit(e.t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: skey, Tenant: Tenant, SessionKey: sessionKey, AgentID: "default", RunClass: "default", UID: newID().String(),
		Kind: store.KindUser, Body: json.RawMessage(`{}`), SessionID: newID(), RunID: r.ID, WantsRun: true,
	}}})
	require.NoError(e.t, err)
	r.fence = store.Fence{SKey: skey, Gen: admitted[0].Gen, RunID: r.ID, Owner: "w/1"}
	claimed, err := e.Store.Claim(e.t.Context(), []store.ClaimRequest{{Fence: r.fence}})
	require.NoError(e.t, err)
	require.Len(e.t, claimed, 1)
	r.gen, r.first = r.fence.Gen, claimed[0].FirstGen
	r.frames = []*runv1.Frame{r.frame(1, runv1.FrameKind_FRAME_KIND_START, "")}
	return r
}

// Start answers requests for snapshots and tells that the run has started.
func (r *Run) Start() *Run {
	r.t.Helper()
	requests := make(chan bus.Msg, 64)
	sub, err := r.env.Bus.Listen(bus.SnapshotSubject(r.SKey), requests)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(r.t.Context())
	var answering sync.WaitGroup
	answering.Go(func() { r.answer(ctx, requests) })
	r.t.Cleanup(func() {
		cancel()
		answering.Wait()
		require.NoError(r.t, sub.Close())
	})
	r.Tell(time.Now())
	return r
}

// Tell publishes the event of the start.
func (r *Run) Tell(at time.Time) {
	r.t.Helper()
	data, err := event.EncodeLifecycle(&event.Lifecycle{
		Type: event.RunStarted, Tenant: Tenant, SKey: r.SKey, RunID: r.ID.String(), Gen: r.gen, At: at, Address: r.target,
	})
	require.NoError(r.t, err)
	_, err = r.env.Bus.Publish(r.t.Context(), bus.Msg{
		Subject: bus.EventSubject(r.SKey, string(event.RunStarted)), ID: newID().String(), Data: data,
	})
	require.NoError(r.t, err)
	r.env.told.Add(1)
}

func (r *Run) answer(ctx context.Context, requests <-chan bus.Msg) {
	for {
		select {
		case m := <-requests:
			r.mu.Lock()
			data, err := proto.Marshal(&runv1.SnapshotReply{Reset_: true, RunId: r.ID.String(), Frames: r.frames})
			r.mu.Unlock()
			if err == nil {
				_ = r.env.Bus.Notify(ctx, bus.Msg{Subject: m.Reply, Data: data}) // a lost answer is asked for again
			}
		case <-ctx.Done():
			return
		}
	}
}

func (r *Run) frame(n int64, kind runv1.FrameKind, text string) *runv1.Frame {
	return &runv1.Frame{Gen: r.gen, RunId: r.ID.String(), N: n, Kind: kind, Text: text}
}

func (r *Run) publish(kind runv1.FrameKind, text string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.frame(int64(len(r.frames)+1), kind, text)
	r.frames = append(r.frames, f)
	data, err := proto.Marshal(f)
	require.NoError(r.t, err)
	require.NoError(r.t, r.env.Bus.Notify(r.t.Context(), bus.Msg{Subject: bus.DeltaSubject(r.SKey), Data: data}))
}

// Say streams a piece of text.
func (r *Run) Say(text string) {
	r.t.Helper()
	r.publish(runv1.FrameKind_FRAME_KIND_TEXT, text)
}

// Step ends the preamble of tool calls.
func (r *Run) Step() {
	r.t.Helper()
	r.publish(runv1.FrameKind_FRAME_KIND_STEP, "")
}

// Restart is another attempt: what was said is taken back.
func (r *Run) Restart() {
	r.t.Helper()
	r.mu.Lock()
	r.gen++
	r.frames = nil
	r.mu.Unlock()
	r.publish(runv1.FrameKind_FRAME_KIND_START, "")
}

// Commit ends the run in the store, with one reply per text; nobody is told. It returns the number of the last row.
func (r *Run) Commit(texts ...string) int64 {
	r.t.Helper()
	replies := make([][]channel.Part, len(texts))
	for i, text := range texts {
		replies[i] = []channel.Part{{Markdown: text}}
	}
	return r.commit(replies...)
}

// CommitParts is Commit with one reply of these parts.
func (r *Run) CommitParts(parts ...channel.Part) int64 {
	r.t.Helper()
	return r.commit(append([]channel.Part{}, parts...))
}

func (r *Run) commit(replies ...[]channel.Part) int64 {
	r.t.Helper()
	rows := make([]store.NewReply, len(replies))
	for i, parts := range replies {
		rows[i] = store.NewReply{Platform: r.target.Platform, Target: encode(r.t, r.target), Parts: encode(r.t, parts)}
	}
	s, err := r.env.Store.Session(r.t.Context(), r.SKey)
	require.NoError(r.t, err)
	done, err := r.env.Store.Finish(r.t.Context(), []store.Finish{{
		Fence: r.fence, RunGen: r.first, From: s.DoneSeq + 1, To: s.LastSeq, State: store.RunDone, NextRunID: newID(), Replies: rows,
	}})
	require.NoError(r.t, err)
	require.Equal(r.t, store.Finished, done[0].Outcome)
	return s.OutSeq + int64(len(rows))
}

// Finish ends the run with a reply: it is committed, the last frame is sent, and the doorbell rings.
func (r *Run) Finish(text string) int64 {
	r.t.Helper()
	outSeq := r.Commit(text)
	r.publish(runv1.FrameKind_FRAME_KIND_END, "")
	r.env.Ring(r.SKey, outSeq)
	return outSeq
}
