package inbox

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func stopRow(seq int64, body string) store.InboxRow {
	return store.InboxRow{Seq: seq, Kind: store.KindStop, Body: json.RawMessage(body)}
}

func TestStopScope(t *testing.T) {
	t.Parallel()
	const plain, all = `{"command":{"name":"stop"}}`, `{"command":{"name":"stop","args":"all"}}`
	user := func(seq int64) store.InboxRow { return store.InboxRow{Seq: seq, Kind: store.KindUser} }
	taken := store.InboxRow{Seq: 4, Kind: store.KindUser, RunID: uuid.New()}
	for name, c := range map[string]struct {
		rows             []store.InboxRow
		to               int64
		dropped, waiting int
	}{
		"nothing behind":              {nil, 2, 0, 0},
		"plain keeps all":             {[]store.InboxRow{user(3), user(4), stopRow(5, plain)}, 2, 0, 2},
		"all drops all before it":     {[]store.InboxRow{user(3), user(4), stopRow(5, all)}, 5, 2, 0},
		"later ones wait":             {[]store.InboxRow{user(3), stopRow(4, all), user(5), user(6)}, 4, 1, 2},
		"the newest all counts":       {[]store.InboxRow{user(3), stopRow(4, all), user(5), stopRow(6, all)}, 6, 2, 0},
		"plain after all":             {[]store.InboxRow{user(3), stopRow(4, all), user(5), stopRow(6, plain)}, 4, 1, 1},
		"commands are not counted":    {[]store.InboxRow{{Seq: 3, Kind: store.KindCommand}, taken, stopRow(5, all)}, 5, 0, 0},
		"rows of the range":           {[]store.InboxRow{user(1), stopRow(2, all), user(3)}, 2, 0, 1},
		"another argument":            {[]store.InboxRow{user(3), stopRow(4, `{"command":{"name":"stop","args":"please"}}`)}, 2, 0, 1},
		"another writing":             {[]store.InboxRow{user(3), stopRow(4, `{"command":{"name":"stop","args":" Ａll "}}`)}, 4, 1, 0},
		"unreadable":                  {[]store.InboxRow{user(3), stopRow(4, `[]`), stopRow(5, `{}`)}, 2, 0, 1},
		"a message that says as much": {[]store.InboxRow{{Seq: 3, Kind: store.KindUser, Body: json.RawMessage(all)}}, 2, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, dropped, waiting := StopScope(c.rows, 2)
			require.Equal(t, c.to, to)
			require.Equal(t, c.dropped, dropped)
			require.Equal(t, c.waiting, waiting)
		})
	}
}

func TestStoppedText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting, dropped int
		want             string
	}{
		{0, 0, "Stopped."},
		{1, 0, "Stopped. 1 message is waiting."},
		{2, 0, "Stopped. 2 messages are waiting."},
		{0, 1, "Stopped. 1 waiting message was dropped."},
		{1, 3, "Stopped. 3 waiting messages were dropped. 1 message is waiting."},
	} {
		require.Equal(t, c.want, StoppedText(c.waiting, c.dropped))
	}
}
