package inbox

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Whatever rows of whatever policies, groups and kinds wait, runs tile the inbox, and each message is settled once: it is
// answered, or a newer one has replaced it.
func TestTake_TilesAnyInbox(t *testing.T) {
	t.Parallel()
	words := rapid.SampledFrom([]string{
		"queue/a", "queue/b", "collect/a", "collect/b", "latest/a", "latest/b", "steer/a", "interrupt/a", "reject/a", "/a",
		"command", "stop", "approval", "refused", "system", "timer", "moved", "queue/a!other", "steer/b!other",
	})
	rapid.Check(t, func(t *rapid.T) {
		rows := mannered(strings.Join(rapid.SliceOfN(words, 1, 20).Draw(t, "rows"), " "))
		wanting := map[int64]bool{}
		for i := range rows {
			if rows[i].Kind == store.KindUser {
				rows[i].Group = rapid.SampledFrom([]string{"", "", "g", "h"}).Draw(t, "group")
			}
			if wantsRun(rows[i]) {
				wanting[rows[i].Seq] = true
			}
		}
		settled := map[int64]bool{}
		for done, last := int64(10), rows[len(rows)-1].Seq; done < last; {
			got := Take(rows[done-10:], done, ownRun, nil)
			require.Equal(t, done+1, got.From)
			require.Greater(t, got.To, done)
			for _, row := range append(got.Prompt, got.Superseded...) {
				require.True(t, wanting[row.Seq], "row %d wants no run", row.Seq)
				require.False(t, settled[row.Seq], "row %d is settled twice", row.Seq)
				settled[row.Seq] = true
			}
			for _, seq := range got.Late { // as the statement does that stores the message
				rows[seq-11].RunID = uuid.New()
			}
			done = got.To
		}
		require.Equal(t, wanting, settled)
	})
}
