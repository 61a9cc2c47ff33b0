package inbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/intent"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// argAll is what makes a stop cover the messages that wait before it.
const argAll = "all"

// StopScope says where the range of a stopped run ends, given the rows behind to, its end so far, in order. A stop that
// asks for all covers everything up to its row: dropped counts the messages that are not answered for it, waiting those
// that come next. Earlier rows are ignored.
func StopScope(rows []store.InboxRow, to int64) (newTo int64, dropped, waiting int) {
	newTo = to
	for _, row := range rows {
		switch {
		case row.Seq <= to:
		case stopsAll(row):
			newTo = row.Seq
			dropped, waiting = dropped+waiting, 0
		case wantsRun(row):
			waiting++
		}
	}
	return newTo, dropped, waiting
}

// stopsAll reports whether a row is a stop that asks for all. A body that cannot be read asks for nothing more.
func stopsAll(row store.InboxRow) bool {
	if row.Kind != store.KindStop {
		return false
	}
	var m event.Message
	if err := json.Unmarshal(row.Body, &m); err != nil || m.Command == nil {
		return false
	}
	return strings.EqualFold(intent.Fold(m.Command.Args), argAll)
}

// StoppedText confirms a stop and says what becomes of the messages behind the run.
func StoppedText(waiting, dropped int) string {
	text := "Stopped."
	if dropped > 0 {
		text += " " + DroppedText(dropped)
	}
	switch {
	case waiting == 1:
		text += " 1 message is waiting."
	case waiting > 1:
		text += fmt.Sprintf(" %d messages are waiting.", waiting)
	}
	return text
}

// DroppedText says that n messages, at least one, get no answer.
func DroppedText(n int) string {
	if n == 1 {
		return "1 waiting message was dropped."
	}
	return fmt.Sprintf("%d waiting messages were dropped.", n)
}

// AsksForStop reports whether somebody asked for a stop in so many words, who waits for its confirmation. An interruption
// is no such row: what interrupts is answered instead.
func AsksForStop(rows []store.InboxRow) bool {
	return slices.ContainsFunc(rows, func(r store.InboxRow) bool { return r.Kind == store.KindStop })
}
