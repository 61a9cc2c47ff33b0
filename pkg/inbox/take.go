// Package inbox decides which of the rows that wait in a session's inbox a run takes. Workers use it when they claim a
// run, routers when they end one that nobody has claimed, so that both draw the same line.
package inbox

import (
	"bytes"
	"slices"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/event"
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
	// Superseded are rows of the range that a newer message has replaced under the policy latest: the run does not answer
	// them, tells their senders and keeps them in the history, see store.RoleSuperseded. Their attachments go to the prompt.
	Superseded []store.InboxRow
	// Waiting are the rows behind the range that want a run.
	Waiting []store.InboxRow
}

// Take decides by the policy of the rows above doneSeq, see [event.Policy]: the oldest message that wants a run says how
// many of those behind it are answered with it. A run that goes on keeps the rows that its stored messages name and does
// not choose again.
func Take(rows []store.InboxRow, doneSeq int64, runID uuid.UUID, stored []store.Message) Taking {
	t := Taking{From: doneSeq + 1, To: doneSeq}
	last := -1
	if named := NamedRows(stored); len(named) > 0 {
		last = t.keep(rows, runID, named, replacedRows(stored))
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
func wantsRun(row store.InboxRow) bool {
	return (row.Kind == store.KindUser || row.Kind == store.KindSteer) && row.RunID == uuid.Nil
}

// choose picks the oldest row and those that belong to its turn; it returns the index of the last row that is taken in
// its place.
func (t *Taking) choose(rows []store.InboxRow) (last int) {
	first := slices.IndexFunc(rows, wantsRun)
	if first < 0 {
		return -1
	}
	if newest := lastInterruption(rows); newest >= 0 {
		return t.takeAll(rows[:newest+1])
	}
	if rows[first].Kind == store.KindSteer { // left over: it came too late for the turn that it was meant for
		return t.takeWhile(rows, first, func(r store.InboxRow) bool { return r.Kind == store.KindSteer })
	}
	switch oldest := manner(rows[first]); oldest.policy {
	case event.PolicyCollect:
		return t.takeWhile(rows, first, func(r store.InboxRow) bool { return r.Kind == store.KindUser && manner(r) == oldest })
	case event.PolicyLatest:
		return t.takeNewest(rows, first)
	default:
		return t.takeGroup(rows, first)
	}
}

// lastInterruption is the newest row that interrupts, -1 without one.
func lastInterruption(rows []store.InboxRow) int {
	for i, row := range slices.Backward(rows) {
		if interrupts(row) {
			return i
		}
	}
	return -1
}

// interrupts looks for the word before it reads the body: the rows of a whole backlog pass here with each run.
func interrupts(row store.InboxRow) bool {
	return wantsRun(row) && bytes.Contains(row.Body, []byte(event.PolicyInterrupt)) && manner(row).policy == event.PolicyInterrupt
}

// takeAll makes one turn of everything that waits.
func (t *Taking) takeAll(rows []store.InboxRow) (last int) {
	for _, row := range rows {
		if wantsRun(row) {
			t.Prompt = append(t.Prompt, row)
		}
	}
	return len(rows) - 1
}

// takeWhile makes one turn of rows[first] and of what waits behind it, up to the first one that does not belong.
func (t *Taking) takeWhile(rows []store.InboxRow, first int, belongs func(store.InboxRow) bool) (last int) {
	last = first
	for i, row := range rows[first:] {
		if !wantsRun(row) {
			continue
		}
		if !belongs(row) {
			break
		}
		t.Prompt, last = append(t.Prompt, row), first+i
	}
	return last
}

// takeNewest answers the newest of the rows with the policy latest, and leaves out those before it.
func (t *Taking) takeNewest(rows []store.InboxRow, first int) (last int) {
	last = t.takeWhile(rows, first, func(r store.InboxRow) bool {
		return r.Kind == store.KindUser && manner(r).policy == event.PolicyLatest
	})
	n := len(t.Prompt) - 1
	t.Superseded, t.Prompt = t.Prompt[:n:n], t.Prompt[n:]
	return last
}

// takeGroup is the policy queue: one message with those of its group, wherever they stand.
func (t *Taking) takeGroup(rows []store.InboxRow, first int) (last int) {
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

// keep takes the named rows; those that carry this run were taken out of their place by an earlier attempt. Answers to
// questions are named as well, and are no prompt.
func (t *Taking) keep(rows []store.InboxRow, runID uuid.UUID, named, replaced map[int64]bool) (last int) {
	last = -1
	for i, row := range rows {
		if !named[row.Seq] {
			continue
		}
		switch {
		case replaced[row.Seq]:
			t.Superseded = append(t.Superseded, row)
		case row.Kind == store.KindUser || row.Kind == store.KindSteer:
			t.Prompt = append(t.Prompt, row)
		}
		if row.RunID != runID {
			last = i
		}
	}
	return last
}

// replacedRows are those that the stored messages name as superseded.
func replacedRows(stored []store.Message) map[int64]bool {
	replaced := map[int64]bool{}
	for _, m := range stored {
		if m.Role == store.RoleSuperseded {
			replaced[m.InboxSeq] = true
		}
	}
	return replaced
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
