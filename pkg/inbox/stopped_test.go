package inbox

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestTakeStopped_LeavesTheInterruptionToTheNextRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rows    string
		stored  []store.Message
		prompt  []int64
		to      int64
		waiting []int64
	}{
		"the message that interrupts": {rows: "queue/a interrupt/a", prompt: []int64{11}, to: 11, waiting: []int64{12}},
		"what waited before it too": {
			rows: "queue/a queue/a interrupt/a queue/a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13, 14},
		},
		"every one of several": {
			rows: "queue/a interrupt/a interrupt/a", prompt: []int64{11}, to: 11, waiting: []int64{12, 13},
		},
		"the run's own message is not left": {
			rows: "interrupt/a interrupt/a stop", prompt: []int64{11}, to: 11, waiting: []int64{12},
		},
		"alone it is the run's": {rows: "command interrupt/a stop", prompt: []int64{12}, to: 12},
		"a steer that the run took stays its own": {
			rows: "queue/a steer/a!own interrupt/a", prompt: []int64{11}, to: 12, waiting: []int64{13},
		},
		"a run that has stored its rows keeps them": {
			rows: "queue/a interrupt/a interrupt/a", stored: []store.Message{{InboxSeq: 11}, {InboxSeq: 12}}, prompt: []int64{11, 12},
			to: 12, waiting: []int64{13},
		},
		"nothing interrupts":        {rows: "queue/a collect/a stop", prompt: []int64{11}, to: 11, waiting: []int64{12}},
		"nothing to answer at all":  {rows: "command stop", to: 12},
		"nothing is waiting at all": {to: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := TakeStopped(mannered(c.rows), 10, ownRun, c.stored)
			require.EqualValues(t, 11, got.From)
			require.Equal(t, c.prompt, seqs(got.Prompt), "prompt")
			require.Equal(t, c.to, got.To, "to")
			require.Equal(t, c.waiting, seqs(got.Waiting), "waiting")
		})
	}
}

func TestCurrent_OfAnInterruptedRunDoesNotCoverWhatInterruptedIt(t *testing.T) {
	t.Parallel()
	rows := mannered("queue/a interrupt/a")
	rows[0].Seq, rows[1].Seq = 1, 2
	r := &reader{rows: rows}
	stopped, _, err := Current(t.Context(), r, store.Session{SKey: "s", RunID: ownRun, StopRun: ownRun})
	require.NoError(t, err)
	require.EqualValues(t, 1, stopped.To)
	require.Equal(t, []int64{2}, seqs(stopped.Waiting))

	going, _, err := Current(t.Context(), r, store.Session{SKey: "s", RunID: ownRun, StopRun: otherRun})
	require.NoError(t, err)
	require.EqualValues(t, 2, going.To, "the stop was another run's")
}
