package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/tool"
)

// dispatchAgain rings for a run whenever it is queued, as the sweeper does after its pause, until it has ended. It returns
// how often it rang.
func (b *bench) dispatchAgain(t *testing.T, c chat, first store.Admitted) (rings int) {
	t.Helper()
	gen := first.Gen
	await.True(t, patience, func() bool {
		run, err := b.mem.Run(t.Context(), first.RunID)
		require.NoError(t, err)
		if run.State.Final() {
			return true
		}
		if s := b.session(t, c); s.State == store.Queued && s.RunID == first.RunID && s.Gen > gen {
			gen = s.Gen
			rings++
			b.ring(t, c, store.Admitted{Gen: gen, RunID: first.RunID}, 0)
		}
		return false
	}, "run %s has not ended", first.RunID)
	return rings
}

func TestENG04_ARunThatPanicsIsTriedABoundedNumberOfTimesAndTheNextMessageIsAnswered(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tool  bool
		tries int
	}{
		"in one and the same call": {tool: true, tries: 3},
		"anywhere":                 {tries: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, &script{answer: func(ctx context.Context, n int, req llm.Request, say func(string)) (llm.Response, error) {
				switch last := req.Messages[len(req.Messages)-1].Text; {
				case last != "poison":
					return echo(ctx, n, req, say)
				case tc.tool:
					return call("look", `{}`), nil
				default:
					panic("model out of its mind")
				}
			}})
			b.tools.execute = func(context.Context, tool.Request) (tool.Result, error) { panic("tool out of its mind") }
			b.start(t)
			c := newChat(webhook, "a")
			m1 := b.admit(t, c.row("m1", "poison"), c.row("m2", "two"))[0]
			b.ring(t, c, m1, 0)
			other := b.send(t, newChat(webhook, "b"), "o1", "hi")
			require.Equal(t, store.RunDone, b.ended(t, other.RunID).State, "others are not delayed")

			require.Equal(t, tc.tries-1, b.dispatchAgain(t, c, m1))
			run := b.ended(t, m1.RunID)
			require.Equal(t, []any{store.RunDead, tc.tries}, []any{run.State, run.Attempts})
			require.Contains(t, run.Error, "out of its mind")
			replies := b.replies(t, m1.RunID)
			require.Len(t, replies, 1, "one notice")
			require.Contains(t, replies[0], "Sorry")
			letters := b.mem.Letters()
			require.Len(t, letters, 1)
			require.Contains(t, letters[0].Reason, "out of its mind")

			b.idle(t, c)
			sub, err := b.mem.Submission(t.Context(), c.skey, "m2")
			require.NoError(t, err)
			require.Equal(t, []string{"re: two"}, b.replies(t, sub.Run.ID))
		})
	}
}
