package inbox

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// mannered reads rows with seqs from 11: a policy with its sender behind a slash becomes a user row (steer a steer row) with
// the body that admission stores; other words are rows of that kind. "!own" and "!other" carry a run.
func mannered(spec string) []store.InboxRow {
	var rows []store.InboxRow
	for i, word := range strings.Fields(spec) {
		word, run, _ := strings.Cut(word, "!")
		policy, sender, isMessage := strings.Cut(word, "/")
		row := store.InboxRow{Seq: int64(11 + i), Kind: store.InboxKind(word)}
		if isMessage {
			row.Kind = store.KindUser
			if event.Policy(policy) == event.PolicySteer {
				row.Kind = store.KindSteer
			}
			row.Body = json.RawMessage(`{"busy_policy":"` + policy + `","source":{"user_id":"` + sender + `"}}`)
		}
		row.RunID = map[string]uuid.UUID{"own": ownRun, "other": otherRun}[run]
		rows = append(rows, row)
	}
	return rows
}

func TestTake_FollowsThePolicyOfTheRows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows       string
		prompt     []int64
		superseded []int64
		to         int64
		waiting    []int64
	}{
		"queue takes one": {rows: "queue/a queue/a", prompt: []int64{11}, to: 11, waiting: []int64{12}},
		"a row without a policy is queued": {
			rows: "/a collect/a", prompt: []int64{11}, to: 11, waiting: []int64{12},
		},
		"collect takes what one sender wrote": {
			rows: "collect/a collect/a collect/b collect/a", prompt: []int64{11, 12}, to: 12, waiting: []int64{13, 14},
		},
		"collect ends at another policy": {
			rows: "collect/a queue/a collect/a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"collect covers the commands between its rows, not those behind": {
			rows: "collect/a command collect/a command", prompt: []int64{11, 13}, to: 13,
		},
		"collect does not reach over a leftover steer": {
			rows: "collect/a steer/a collect/a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"latest takes the newest and tells of the others": {
			rows: "latest/a latest/b latest/a", prompt: []int64{13}, superseded: []int64{11, 12}, to: 13,
		},
		"latest alone replaces nothing": {rows: "latest/a", prompt: []int64{11}, to: 11},
		"latest replaces nothing of another policy": {
			rows: "latest/a latest/a queue/a latest/a", prompt: []int64{12}, superseded: []int64{11}, to: 12, waiting: []int64{13, 14},
		},
		"what stands before latest has its own turn": {
			rows: "queue/a latest/a latest/a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"latest passes over rows that are taken care of": {
			rows: "latest/a!other refused latest/a latest/a", prompt: []int64{14}, superseded: []int64{13}, to: 14,
		},
		"steers that directly follow are one turn": {
			rows: "steer/a command steer/b queue/a steer/a", prompt: []int64{11, 13}, to: 13, waiting: []int64{14, 15},
		},
		"steers behind a message wait for their turn": {
			rows: "queue/a steer/a", prompt: []int64{11}, to: 11, waiting: []int64{12},
		},
		"interrupt takes all that waits up to the newest": {
			rows: "queue/a collect/b interrupt/a steer/b command interrupt/c queue/a", prompt: []int64{11, 12, 13, 14, 16}, to: 16,
			waiting: []int64{17},
		},
		"interrupt answers the older ones of latest as well": {
			rows: "latest/a latest/a interrupt/a latest/a", prompt: []int64{11, 12, 13}, to: 13, waiting: []int64{14},
		},
		"an interruption that a run has taken is over": {
			rows: "interrupt/a!other queue/a queue/a", prompt: []int64{12}, to: 12, waiting: []int64{13},
		},
		"rows that carry a run stretch the range of every policy": {
			rows: "collect/a steer/a!own queue/a", prompt: []int64{11}, to: 12, waiting: []int64{13},
		},
		"approvals are covered and never a prompt": {rows: "approval queue/a approval", prompt: []int64{12}, to: 12},
		"approvals alone are covered":              {rows: "approval refused", to: 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Take(mannered(c.rows), 10, ownRun, nil)
			require.Equal(t, int64(11), got.From)
			require.Equal(t, c.prompt, seqs(got.Prompt), "prompt")
			require.Equal(t, c.superseded, seqs(got.Superseded), "superseded")
			require.Equal(t, c.to, got.To, "to")
			require.Equal(t, c.waiting, seqs(got.Waiting), "waiting")
			require.Empty(t, got.Late)
		})
	}
}

func TestTake_ARunThatGoesOnKeepsItsRowsUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	user := func(seqs ...int64) (out []store.Message) {
		for _, seq := range seqs {
			out = append(out, store.Message{Role: "user", InboxSeq: seq})
		}
		return out
	}
	replaced := func(seq int64) store.Message { return store.Message{Role: store.RoleSuperseded, InboxSeq: seq} }
	for name, c := range map[string]struct {
		rows       string
		stored     []store.Message
		prompt     []int64
		superseded []int64
		to         int64
		waiting    []int64
	}{
		"collect does not grow": {
			rows: "collect/a collect/a collect/a", stored: user(11, 12), prompt: []int64{11, 12}, to: 12, waiting: []int64{13},
		},
		"latest is not replaced any more": {
			rows: "latest/a latest/a latest/a", stored: append(user(12), replaced(11)), prompt: []int64{12}, superseded: []int64{11},
			to: 12, waiting: []int64{13},
		},
		"an interruption comes behind the run": {
			rows: "queue/a interrupt/a", stored: user(11), prompt: []int64{11}, to: 11, waiting: []int64{12},
		},
		"a steer that it took is part of it": {
			rows: "queue/a queue/a steer/a!own", stored: user(11, 13), prompt: []int64{11, 13}, to: 11, waiting: []int64{12},
		},
		"an answer to its question is no prompt": {
			rows: "queue/a queue/b approval!own", stored: user(11, 13), prompt: []int64{11}, to: 11, waiting: []int64{12},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Take(mannered(c.rows), 10, ownRun, c.stored)
			require.Equal(t, c.prompt, seqs(got.Prompt), "prompt")
			require.Equal(t, c.superseded, seqs(got.Superseded), "superseded")
			require.Equal(t, c.to, got.To, "to")
			require.Equal(t, c.waiting, seqs(got.Waiting), "waiting")
		})
	}
}

// Whatever policies meet, repeated taking settles each message once: it is answered, or a newer one has replaced it.
func TestTake_TilesTheInboxUnderEveryPolicy(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"queue/a collect/a collect/a latest/b latest/b steer/a steer/a reject/a",
		"latest/a queue/a latest/a command latest/a approval collect/b collect/a",
		"steer/a collect/a refused interrupt/b queue/a stop interrupt/a latest/a latest/a",
		"approval command stop",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			rows, settled, done := mannered(spec), map[int64]int{}, int64(10)
			for last := rows[len(rows)-1].Seq; done < last; {
				got := Take(rows[done-10:], done, ownRun, nil)
				require.Equal(t, done+1, got.From)
				require.Greater(t, got.To, done)
				for _, row := range append(got.Prompt, got.Superseded...) {
					require.LessOrEqual(t, row.Seq, got.To)
					settled[row.Seq]++
				}
				done = got.To
			}
			for _, row := range rows {
				want := 0
				if row.Kind == store.KindUser || row.Kind == store.KindSteer {
					want = 1
				}
				require.Equal(t, want, settled[row.Seq], "row %d", row.Seq)
			}
		})
	}
}

func TestManner_OfARowThatSaysNothingIsATurnOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "null", "[]", "{", `{}`, `{"busy_policy":7,"source":{"user_id":"a"}}`} {
		rows := []store.InboxRow{
			{Seq: 1, Kind: store.KindUser, Body: json.RawMessage(body)}, {Seq: 2, Kind: store.KindUser, Body: json.RawMessage(body)},
		}
		require.Equal(t, []int64{1}, seqs(Take(rows, 0, ownRun, nil).Prompt), "%q", body)
	}
	row := mannered("latest/a")[0]
	require.Equal(t, event.PolicyLatest, PolicyOf(row))
	require.Equal(t, "a", Sender(row))
}

func TestAsksForStop(t *testing.T) {
	t.Parallel()
	require.True(t, AsksForStop(mannered("queue/a stop")))
	require.False(t, AsksForStop(mannered("queue/a interrupt/a command")))
}
