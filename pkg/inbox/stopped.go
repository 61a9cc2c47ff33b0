package inbox

import (
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// TakeStopped is Take for a run that ends because it was stopped. If the run has stored nothing, nobody knows what it had
// taken, and the message that interrupted it would look like a part of it: it would be covered by the end of the run and
// never answered. So the range ends before the first message that interrupts, unless that is the one that the run began
// with. At worst a message is left to the next turn that this one was to answer.
func TakeStopped(rows []store.InboxRow, doneSeq int64, runID uuid.UUID, stored []store.Message) Taking {
	begun := rows
	if len(NamedRows(stored)) == 0 {
		begun = beforeInterruption(rows)
	}
	t := Take(begun, doneSeq, runID, stored)
	for _, row := range rows[len(begun):] {
		if wantsRun(row) {
			t.Waiting = append(t.Waiting, row)
		}
	}
	return t
}

// beforeInterruption are the rows in front of the first one that interrupts another.
func beforeInterruption(rows []store.InboxRow) []store.InboxRow {
	first := slices.IndexFunc(rows, wantsRun)
	if first < 0 {
		return rows
	}
	behind := rows[first+1:]
	i := slices.IndexFunc(behind, interrupts)
	if i < 0 {
		return rows
	}
	return rows[:first+1+i]
}
