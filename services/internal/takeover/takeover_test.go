package takeover_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/memstore"
	"github.com/hermes-runtime/hermes/pkg/tool"
	"github.com/hermes-runtime/hermes/services/internal/takeover"
)

// recorder takes what a taker tells.
type recorder struct {
	subjects []string
	events   []event.Lifecycle
}

func (r *recorder) Publish(_ context.Context, m bus.Msg) (bus.Ack, error) {
	r.subjects = append(r.subjects, m.Subject)
	return bus.Ack{}, nil
}

func (r *recorder) PublishAll(context.Context, []bus.Msg) []error { panic("not used") }

func (r *recorder) Notify(context.Context, bus.Msg) error { panic("not used") }

func (r *recorder) Emit(ev event.Lifecycle) { r.events = append(r.events, ev) }

func (r *recorder) types() []event.Type {
	var types []event.Type
	for _, ev := range r.events {
		types = append(types, ev.Type)
	}
	return types
}

type bundle struct {
	*takeover.Taker
	mem  *memstore.Store
	rec  *recorder
	skey string
	n    int
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{mem: memstore.New(), rec: &recorder{}, skey: session.SKey("default", "chat")}
	var err error
	b.Taker, err = takeover.New(takeover.Deps{
		Store: b.mem, Bus: b.rec, Events: b.rec, StallLimit: 3, AttemptLimit: 10,
		Logger: slog.New(slog.DiscardHandler), Meter: noop.Meter{},
	})
	require.NoError(t, err)
	return b
}

func (b *bundle) admit(t *testing.T, platform string) store.Admitted {
	t.Helper()
	b.n++
	body, err := json.Marshal(event.Message{UID: fmt.Sprint("uid", b.n), ReplyTo: event.Address{Platform: platform, ChatID: "1"}})
	require.NoError(t, err)
	got, err := b.mem.Admit(t.Context(), store.Admission{Messages: []store.AdmitMessage{{
		SKey: b.skey, Tenant: "default", SessionKey: "chat", AgentID: "helper", RunClass: "fast", UID: fmt.Sprint("uid", b.n),
		Kind: store.KindUser, Body: body, SessionID: uuid.New(), RunID: uuid.New(), WantsRun: true,
	}}})
	require.NoError(t, err)
	return got[0]
}

// claim gives the queued run to a worker and returns it as a sweeper reads it.
func (b *bundle) claim(t *testing.T) (store.Claimed, store.ActiveRun) {
	t.Helper()
	s, err := b.mem.Session(t.Context(), b.skey)
	require.NoError(t, err)
	claimed, err := b.mem.Claim(t.Context(), []store.ClaimRequest{{
		Fence: store.Fence{SKey: b.skey, Gen: s.Gen, RunID: s.RunID, Owner: fmt.Sprint("w/", s.Gen)},
	}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	runs, _, err := b.mem.RunningRuns(t.Context(), []int{session.Partition(b.skey)}, "", 10)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	return claimed[0], runs[0]
}

// begin stores a step that asks for a call, and its intent.
func (b *bundle) begin(t *testing.T, c store.Claimed, n int, id, arguments string, effect tool.Effect) {
	t.Helper()
	content, err := json.Marshal(llm.Message{
		Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: id, Name: "look", Arguments: arguments}, {ID: id + "'", Name: "look", Arguments: "{}"}},
	})
	require.NoError(t, err)
	results, err := b.mem.Checkpoint(t.Context(), []store.Checkpoint{{
		Fence:     c.Fence,
		Messages:  []store.Message{{RunGen: c.FirstGen, N: n, RunID: c.RunID, Role: string(llm.Assistant), Content: content}},
		ToolCalls: []store.ToolCall{{CallID: id, Name: "look", Effect: string(effect), State: store.ToolIntent}},
	}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
}

func (b *bundle) settle(t *testing.T, c store.Claimed, id string) {
	t.Helper()
	results, err := b.mem.Checkpoint(t.Context(), []store.Checkpoint{{
		Fence: c.Fence, ToolCalls: []store.ToolCall{{CallID: id, Name: "look", Effect: "unsafe", State: store.ToolUnknown}},
	}})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
}

func (b *bundle) take(t *testing.T, run store.ActiveRun, delay time.Duration) takeover.Result {
	t.Helper()
	got, err := b.Take(t.Context(), run, "the worker was lost", delay)
	require.NoError(t, err)
	return got
}

func TestTake_QueuesTheSameRunUnderTheNextGenerationAndRings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res := b.admit(t, "webhook")
	_, run := b.claim(t)
	require.Equal(t, takeover.Result{Outcome: takeover.Queued, Gen: res.Gen + 1, RunID: res.RunID}, b.take(t, run, 0))
	require.Equal(t, []string{bus.RunSubject("fast", b.skey)}, b.rec.subjects)
	require.Equal(t, []event.Type{event.RunTakenOver}, b.rec.types())
	require.Equal(t, takeover.Result{Outcome: takeover.Moved}, b.take(t, run, 0), "it has moved on")
	require.Len(t, b.rec.events, 1)
}

func TestTake_BystandersMayCostTenWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admit(t, "webhook")
	for range 9 {
		_, run := b.claim(t)
		require.Equal(t, takeover.Queued, b.take(t, run, 0).Outcome)
	}
	_, run := b.claim(t)
	require.Equal(t, takeover.Dead, b.take(t, run, 0).Outcome)
}

func TestTake_OneCallMayCostThreeWorkersWhateverItsId(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admit(t, "webhook")
	for i, arguments := range []string{`{"a":1,"b":2}`, `{"b":2, "a":1}`} {
		c, run := b.claim(t)
		b.begin(t, c, i+1, fmt.Sprint("call", i), arguments, tool.Unsafe)
		require.Equal(t, takeover.Queued, b.take(t, run, 0).Outcome)
		s, err := b.mem.Session(t.Context(), b.skey)
		require.NoError(t, err)
		require.Equal(t, i+1, s.Stall)
		_, bystander := b.claim(t)
		require.Equal(t, run.RunID, bystander.RunID)
		b.takeSettled(t, fmt.Sprint("call", i))
	}
	c, run := b.claim(t)
	b.begin(t, c, 3, "call2", `{"a":1,"b":2}`, tool.Unsafe)
	require.Equal(t, takeover.Dead, b.take(t, run, 0).Outcome)
}

// takeSettled settles a call in the hands of the present owner and takes the run from it, as from a bystander.
func (b *bundle) takeSettled(t *testing.T, id string) {
	t.Helper()
	runs, _, err := b.mem.RunningRuns(t.Context(), []int{session.Partition(b.skey)}, "", 10)
	require.NoError(t, err)
	b.settle(t, store.Claimed{Fence: store.Fence{SKey: b.skey, Gen: runs[0].Gen, RunID: runs[0].RunID, Owner: runs[0].Owner}}, id)
	require.Equal(t, takeover.Queued, b.take(t, runs[0], 0).Outcome)
}

func TestTake_OtherArgumentsAreAnotherCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admit(t, "webhook")
	for i := range 4 {
		c, run := b.claim(t)
		b.begin(t, c, i+1, fmt.Sprint("call", i), fmt.Sprintf(`{"a":%d}`, i), tool.Unsafe)
		require.Equal(t, takeover.Queued, b.take(t, run, 0).Outcome)
		b.claim(t)
		b.takeSettled(t, fmt.Sprint("call", i))
	}
	s, err := b.mem.Session(t.Context(), b.skey)
	require.NoError(t, err)
	require.Equal(t, 1, s.Stall)
}

func TestTake_PanicsCountAndTheirPausesDouble(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.admit(t, "webhook")
	for i := range 2 {
		_, run := b.claim(t)
		before := time.Now()
		require.Equal(t, takeover.Queued, b.take(t, run, time.Hour).Outcome)
		s, err := b.mem.Session(t.Context(), b.skey)
		require.NoError(t, err)
		require.Equal(t, i+1, s.Stall)
		require.False(t, s.QueuedAt.Before(before.Add(time.Hour<<(i+1))))
		require.Empty(t, b.rec.subjects, "nobody rings for a run that rests")
	}
	_, run := b.claim(t)
	require.Equal(t, takeover.Dead, b.take(t, run, time.Hour).Outcome)
}

func TestGiveUp_ApologisesClosesCallsAndGoesOnWithTheNextMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		platform string
		rung     []string
		events   []event.Type
	}{
		"pushed": {"webhook", []string{bus.OutSubject("webhook", session.SKey("default", "chat"))}, []event.Type{event.RunDead, event.RunFinished}},
		"read":   {event.PlatformAPI, nil, []event.Type{event.RunDead, event.RunFinished, event.ProcessingCompleted}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first := b.admit(t, c.platform)
			b.admit(t, c.platform)
			claimed, run := b.claim(t)
			b.begin(t, claimed, 1, "call", `{}`, tool.Unsafe)
			got, err := b.GiveUp(t.Context(), run, "too many")
			require.NoError(t, err)
			require.Equal(t, takeover.Dead, got.Outcome)

			dead, err := b.mem.Run(t.Context(), first.RunID)
			require.NoError(t, err)
			require.Equal(t, []any{store.RunDead, int64(1), int64(1)}, []any{dead.State, dead.FromSeq, dead.ToSeq})
			calls, err := b.mem.RunToolCalls(t.Context(), first.RunID)
			require.NoError(t, err)
			require.Equal(t, store.ToolUnknown, calls[0].State)
			history, err := b.mem.RunMessages(t.Context(), first.RunID)
			require.NoError(t, err)
			require.Len(t, history, 3, "each call has its result")
			for i, row := range history {
				require.Equal(t, i+1, row.N)
			}
			replies, err := b.mem.RunReplies(t.Context(), first.RunID)
			require.NoError(t, err)
			require.Len(t, replies, 1)
			require.Contains(t, string(replies[0].Parts), "Sorry")
			letters := b.mem.Letters()
			require.Len(t, letters, 1)
			require.Equal(t, []string{store.DeadKindRun, "too many"}, []string{letters[0].Kind, letters[0].Reason})

			require.Equal(t, c.events, b.rec.types())
			require.Equal(t, "uid1", b.rec.events[0].MsgUID)
			require.Equal(t, append(c.rung, bus.RunSubject("fast", b.skey), bus.DeadLetterSubject(store.DeadKindRun, "default")), b.rec.subjects)
			next, _ := b.claim(t)
			require.Equal(t, []any{got.RunID, int64(2)}, []any{next.RunID, next.Inbox[0].Seq})

			again, err := b.GiveUp(t.Context(), run, "too many")
			require.NoError(t, err)
			require.Equal(t, takeover.Result{Outcome: takeover.Moved}, again)
			require.Len(t, b.mem.Letters(), 1)
		})
	}
}
