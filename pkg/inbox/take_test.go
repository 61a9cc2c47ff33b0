package inbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

var (
	ownRun   = uuid.MustParse("00000000-0000-7000-8000-000000000001")
	otherRun = uuid.MustParse("00000000-0000-7000-8000-000000000002")
)

// rowsFrom reads rows with seqs from 11: user, user:<group>, user!own, user!other (carries a run), or another kind.
func rowsFrom(spec string) []store.InboxRow {
	var rows []store.InboxRow
	for i, word := range strings.Fields(spec) {
		word, run, _ := strings.Cut(word, "!")
		kind, group, _ := strings.Cut(word, ":")
		row := store.InboxRow{Seq: int64(11 + i), Kind: store.InboxKind(kind), Group: group}
		switch run {
		case "own":
			row.RunID = ownRun
		case "other":
			row.RunID = otherRun
		}
		rows = append(rows, row)
	}
	return rows
}

func seqs(rows []store.InboxRow) []int64 {
	var out []int64
	for _, r := range rows {
		out = append(out, r.Seq)
	}
	return out
}

func TestTake_QueuePolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows    string
		named   []int64
		prompt  []int64
		to      int64
		late    []int64
		waiting []int64
	}{
		"one message": {rows: "user", prompt: []int64{11}, to: 11},
		"only the oldest": {
			rows: "user user user", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"rows before it are covered": {
			rows: "command system refused stop user user", prompt: []int64{15}, to: 15, waiting: []int64{16},
		},
		"rows behind it are not, they are the next run's": {
			rows: "user command stop user", prompt: []int64{11}, to: 11, waiting: []int64{14},
		},
		"rows right behind it that carry a run are": {
			rows: "user user!other user!own command user", prompt: []int64{11}, to: 13, waiting: []int64{15},
		},
		"but not behind another row": {
			rows: "user command user!other user", prompt: []int64{11}, to: 11, waiting: []int64{14},
		},
		"rows that carry a run are no prompt": {
			rows: "user!other user", prompt: []int64{12}, to: 12,
		},
		"a group is one prompt": {
			rows: "user:a user:a user", prompt: []int64{11, 12}, to: 12, waiting: []int64{13},
		},
		"covered rows do not part a group": {
			rows: "user:a command user:a system user", prompt: []int64{11, 13}, to: 13, waiting: []int64{15},
		},
		"a message of another turn does": {
			rows: "user:a user user:a user:b", prompt: []int64{11, 13}, to: 11, late: []int64{13}, waiting: []int64{12, 14},
		},
		"groups begin with their oldest row": {
			rows: "user user:a user:a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"timers and approvals are covered, a steer that was left over is not": {
			rows: "timer steer approval user", prompt: []int64{12}, to: 12, waiting: []int64{14},
		},
		"nothing to answer covers everything": {rows: "command stop", to: 12},
		"nothing at all":                      {to: 10},
		"a run that goes on keeps its rows": {
			rows: "user:a user:a user:a", named: []int64{11, 12}, prompt: []int64{11, 12}, to: 12, waiting: []int64{13},
		},
		"those taken out of their place do not stretch the range": {
			rows: "user:a user user:a!own user", named: []int64{11, 13}, prompt: []int64{11, 13}, to: 11, waiting: []int64{12, 14},
		},
		"and end it where they stand right behind": {
			rows: "user:a user:a!own user", named: []int64{11, 12}, prompt: []int64{11, 12}, to: 12, waiting: []int64{13},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stored []store.Message
			for _, seq := range c.named {
				stored = append(stored, store.Message{InboxSeq: seq}, store.Message{})
			}
			got := Take(rowsFrom(c.rows), 10, ownRun, stored)
			require.Equal(t, int64(11), got.From)
			require.Equal(t, c.to, got.To)
			require.Equal(t, c.prompt, seqs(got.Prompt))
			require.Equal(t, c.late, got.Late)
			require.Equal(t, c.waiting, seqs(got.Waiting))
		})
	}
}

// Whatever rows wait, repeated taking answers each message once, in ranges without gap or overlap.
func TestTake_RunsTileTheInbox(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{
		"user user user", "command user stop user system", "user:a user user:a user:b user:b command user:a",
		"user:a command user:a user refused", "stop stop", "user user:x user user:x user user:x",
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			rows := rowsFrom(spec)
			answered := map[int64]int{}
			done := int64(10)
			for range rows {
				var above []store.InboxRow
				for _, r := range rows {
					if r.Seq > done {
						above = append(above, r)
					}
				}
				if len(above) == 0 {
					break
				}
				got := Take(above, done, ownRun, nil)
				require.Equal(t, done+1, got.From)
				require.Greater(t, got.To, done)
				for _, r := range got.Prompt {
					answered[r.Seq]++
				}
				for i := range rows {
					for _, late := range got.Late {
						if rows[i].Seq == late {
							rows[i].RunID = ownRun
						}
					}
				}
				done = got.To
			}
			require.Equal(t, rows[len(rows)-1].Seq, done)
			for _, r := range rows {
				want := 0
				if r.Kind == store.KindUser {
					want = 1
				}
				require.Equal(t, want, answered[r.Seq], "row %d", r.Seq)
			}
		})
	}
}
