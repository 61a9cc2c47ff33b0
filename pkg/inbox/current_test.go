package inbox

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// reader answers with what a test sets.
type reader struct {
	rows            []store.InboxRow
	stored          []store.Message
	rowsErr, msgErr error
	asked           []uuid.UUID
}

func (r *reader) InboxAfter(_ context.Context, _ string, seq int64) ([]store.InboxRow, error) {
	return r.rows[seq:], r.rowsErr
}

func (r *reader) RunMessages(_ context.Context, id uuid.UUID) ([]store.Message, error) {
	r.asked = append(r.asked, id)
	return r.stored, r.msgErr
}

func threeMessages() []store.InboxRow {
	return []store.InboxRow{{Seq: 1, Kind: store.KindUser}, {Seq: 2, Kind: store.KindUser}, {Seq: 3, Kind: store.KindUser}}
}

func TestCurrent_TakesAsTheRunDoes(t *testing.T) {
	t.Parallel()
	r := &reader{rows: threeMessages(), stored: []store.Message{{InboxSeq: 2}, {InboxSeq: 3}}}
	taken, rows, err := Current(t.Context(), r, store.Session{SKey: "s", DoneSeq: 1, RunID: ownRun})
	require.NoError(t, err)
	require.Equal(t, r.rows[1:], rows)
	require.EqualValues(t, 2, taken.From)
	require.EqualValues(t, 3, taken.To, "the stored messages say what it took")
	require.Equal(t, []uuid.UUID{ownRun}, r.asked)
}

func TestCurrent_WithoutARunIsWhatOneWouldTake(t *testing.T) {
	t.Parallel()
	r := &reader{rows: threeMessages()}
	taken, _, err := Current(t.Context(), r, store.Session{SKey: "s"})
	require.NoError(t, err)
	require.EqualValues(t, 1, taken.To)
	require.Len(t, taken.Waiting, 2)
	require.Empty(t, r.asked)
}

func TestCurrent_ReportsWhatCouldNotBeRead(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for want, r := range map[string]*reader{
		"read inbox: down":               {rows: threeMessages(), rowsErr: down},
		"read messages of the run: down": {rows: threeMessages(), msgErr: down},
	} {
		_, _, err := Current(t.Context(), r, store.Session{SKey: "s", RunID: ownRun})
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, down)
	}
}
