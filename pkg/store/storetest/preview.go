package storetest

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func previewCases() []testCase {
	return []testCase{
		{"previews of a run are kept until they are forgotten", previews},
		{"preview with poison is rejected", previewPoison},
	}
}

func (e *env) previews(t tb, c chat, runID uuid.UUID) []string {
	t.Helper()
	got, err := e.Store.Previews(t.Context(), c.skey, runID)
	require.NoError(t, err)
	return got
}

func previews(t *testing.T, e *env) {
	a, b := newChat("a"), newChat("b")
	run, other := newID(), newID()
	require.Empty(t, e.previews(t, a, run))
	for _, id := range []string{"9", "10", "9", "1"} {
		require.NoError(t, e.Store.NotePreview(t.Context(), a.skey, run, id, "egress-1"))
	}
	require.NoError(t, e.Store.NotePreview(t.Context(), a.skey, other, "20", "egress-1"))
	require.NoError(t, e.Store.NotePreview(t.Context(), b.skey, run, "30", "egress-2"))
	require.NoError(t, e.Store.NotePreview(t.Context(), a.skey, run, "9", "egress-2"), "another egress goes on with it")
	require.Equal(t, []string{"9", "10", "1"}, e.previews(t, a, run), "oldest first")

	require.NoError(t, e.Store.ForgetPreviews(t.Context(), a.skey, run))
	require.NoError(t, e.Store.ForgetPreviews(t.Context(), a.skey, run))
	require.Empty(t, e.previews(t, a, run))
	require.Equal(t, []string{"20"}, e.previews(t, a, other))
	require.Equal(t, []string{"30"}, e.previews(t, b, run))
}

func previewPoison(t *testing.T, e *env) {
	c, run := newChat("a"), newID()
	require.ErrorIs(t, e.Store.NotePreview(t.Context(), c.skey, run, "a\x00", "egress-1"), store.ErrRejected)
	require.Empty(t, e.previews(t, c, run))
}
