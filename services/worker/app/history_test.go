package app_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// reads is a store that counts how often histories are read, wholly or in part.
type reads struct {
	store.Store
	whole, part atomic.Int32
}

func (r *reads) History(ctx context.Context, skey string, id uuid.UUID, limit int) ([]store.Message, error) {
	r.whole.Add(1)
	return r.Store.History(ctx, skey, id, limit)
}

func (r *reads) HistoryAfter(ctx context.Context, skey string, id uuid.UUID, runGen int64, limit int) ([]store.Message, error) {
	r.part.Add(1)
	return r.Store.HistoryAfter(ctx, skey, id, runGen, limit)
}

func readCounting(t *testing.T, model *script) (*bench, *reads) {
	t.Helper()
	b := newBench(t, model)
	r := &reads{Store: b.mem}
	b.backends.Store = r
	return b, r
}

// asked is the last request as texts.
func (b *bench) asked() []string {
	calls := b.model.calls()
	var texts []string
	for _, m := range calls[len(calls)-1].Messages {
		texts = append(texts, m.Text)
	}
	return texts
}

func TestHistory_IsReadOnceByAWorker(t *testing.T) {
	t.Parallel()
	b, reads := readCounting(t, worksOnce("send"))
	b.start(t)
	c := newChat(webhook, "a")
	var want []string
	for n := range 4 {
		prompt := fmt.Sprintf("m%d", n)
		if n == 1 {
			prompt = "do it" // with checkpoints
		}
		b.ended(t, b.send(t, c, fmt.Sprintf("m%d", n), prompt).RunID)
		want = append(want, prompt)
		if n == 1 {
			want = append(want, "", "done")
			require.Equal(t, want, b.asked())
			want = append(want, "re: done")
			continue
		}
		require.Equal(t, want, b.asked())
		want = append(want, "re: "+prompt)
	}
	require.Equal(t, []int32{1, 0}, []int32{reads.whole.Load(), reads.part.Load()})
}

func TestHistory_IsCompletedByWhatAnotherWorkerHasAdded(t *testing.T) {
	t.Parallel()
	b, reads := readCounting(t, &script{answer: echo})
	b.start(t)
	c := newChat(webhook, "a")
	b.ended(t, b.send(t, c, "m1", "one").RunID)
	b.foreignTurn(t, c, "m2", "two", "answer of another worker")
	b.ended(t, b.send(t, c, "m3", "three").RunID)
	require.Equal(t, []string{"one", "re: one", "two", "answer of another worker", "three"}, b.asked())
	require.Equal(t, []int32{1, 1}, []int32{reads.whole.Load(), reads.part.Load()})
	b.ended(t, b.send(t, c, "m4", "four").RunID)
	require.Equal(t, []int32{1, 1}, []int32{reads.whole.Load(), reads.part.Load()})
	require.Len(t, b.asked(), 7)
}

// foreignTurn answers a message as another worker does.
func (b *bench) foreignTurn(t *testing.T, c chat, uid, prompt, answer string) {
	t.Helper()
	a := b.admit(t, c.row(uid, prompt))[0]
	claimed, err := b.mem.Claim(t.Context(), []store.ClaimRequest{{
		Fence: store.Fence{SKey: c.skey, Gen: a.Gen, RunID: a.RunID, Owner: "worker-9/n"},
	}})
	require.NoError(t, err)
	require.Len(t, claimed, 1)
	run := claimed[0]
	message := func(n int, role llm.Role, text string) store.Message {
		content := fmt.Appendf(nil, `{"role":%q,"text":%q}`, role, text)
		return store.Message{RunGen: run.FirstGen, N: n, RunID: run.RunID, Role: string(role), Content: content}
	}
	results, err := b.mem.Finish(t.Context(), []store.Finish{{
		Fence: run.Fence, RunGen: run.FirstGen, From: run.DoneSeq + 1, To: a.Seq, State: store.RunDone, NextRunID: newID(),
		Messages: []store.Message{message(1, llm.User, prompt), message(2, llm.Assistant, answer)},
	}})
	require.NoError(t, err)
	require.Equal(t, store.Finished, results[0].Outcome)
}

func TestHistory_OfAConversationThatWasLeftIsNotTheNewOnes(t *testing.T) {
	t.Parallel()
	b, reads := readCounting(t, &script{answer: echo})
	b.start(t)
	c := newChat(webhook, "a")
	b.ended(t, b.send(t, c, "m1", "one").RunID)
	b.admit(t, c.row("n1", "/new", resetRow))
	b.ended(t, b.send(t, c, "m2", "two").RunID)
	require.Equal(t, []string{"two"}, b.asked())
	require.Equal(t, int32(2), reads.whole.Load())
}
