// Package inbox decides which of the rows that wait in a session's inbox a run takes. Workers use it when they claim a
// run, routers when they end one that nobody has claimed, so that both draw the same line.
package inbox

import (
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Taking is what a run takes of the inbox. Runs tile it: the range begins behind the last one's and ends with the last
// row of the prompt, or with rows right behind it for which nothing is left to do.
type Taking struct {
	From, To int64
	// Prompt are the rows that the run answers, in order.
	Prompt []store.InboxRow
	// Late are rows of the prompt that stand behind a message of their own turn. They are taken out of their place, so
	// that the range does not swallow what stands between.
	Late []int64
	// Waiting are the rows behind the range that want a run.
	Waiting []store.InboxRow
}

// Take applies the policy queue to the rows above doneSeq: the oldest message that wants a run, with the rows of its
// group. A run that goes on keeps the rows that its stored messages name and does not choose again.
func Take(rows []store.InboxRow, doneSeq int64, runID uuid.UUID, stored []store.Message) Taking {
	t := Taking{From: doneSeq + 1, To: doneSeq}
	last := -1
	if named := NamedRows(stored); len(named) > 0 {
		last = t.keep(rows, runID, named)
	} else {
		last = t.choose(rows)
	}
	if last >= 0 {
		t.To = extend(rows, last)
	} else if len(t.Prompt) == 0 && len(rows) > 0 { // nothing wants an answer: the rows are covered, or they would want one for ever
		t.To = rows[len(rows)-1].Seq
	}
	for _, row := range rows {
		if row.Seq > t.To && wantsRun(row) && !slices.Contains(t.Late, row.Seq) {
			t.Waiting = append(t.Waiting, row)
		}
	}
	return t
}

// wantsRun reports whether a row becomes the prompt of a turn. Those that carry a run are taken care of; those of other
// kinds are only covered.
func wantsRun(row store.InboxRow) bool { return row.Kind == store.KindUser && row.RunID == uuid.Nil }

// choose picks the oldest row and its group; it returns the index of the last row that is taken in its place.
func (t *Taking) choose(rows []store.InboxRow) (last int) {
	first := slices.IndexFunc(rows, wantsRun)
	if first < 0 {
		return -1
	}
	t.Prompt = append(t.Prompt, rows[first])
	last, crossed := first, false
	for i, row := range rows[first+1:] {
		switch {
		case !wantsRun(row):
		case row.Group == "" || row.Group != rows[first].Group:
			crossed = true
		case crossed:
			t.Prompt, t.Late = append(t.Prompt, row), append(t.Late, row.Seq)
		default:
			t.Prompt, last = append(t.Prompt, row), first+1+i
		}
	}
	return last
}

// keep takes the named rows; those that carry this run were taken out of their place by an earlier attempt.
func (t *Taking) keep(rows []store.InboxRow, runID uuid.UUID, named map[int64]bool) (last int) {
	last = -1
	for i, row := range rows {
		if !named[row.Seq] {
			continue
		}
		t.Prompt = append(t.Prompt, row)
		if row.RunID != runID {
			last = i
		}
	}
	return last
}

// extend returns the seq up to which the rows behind rows[last] carry a run.
func extend(rows []store.InboxRow, last int) int64 {
	for last+1 < len(rows) && rows[last+1].RunID != uuid.Nil {
		last++
	}
	return rows[last].Seq
}

// NamedRows returns the rows that the messages of a run were made from.
func NamedRows(stored []store.Message) map[int64]bool {
	named := map[int64]bool{}
	for _, m := range stored {
		if m.InboxSeq != 0 {
			named[m.InboxSeq] = true
		}
	}
	return named
}
