package memstore

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func TestChecker_RefusesWhatJSONBRefuses(t *testing.T) {
	t.Parallel()
	for value, ok := range map[string]bool{
		``:                         true,
		`null`:                     true,
		`"\\u0000"`:                true,
		`"\\\\u0000"`:              true,
		`"\u0001 \n \" \\"`:        true,
		`"\ud83d\ude00"`:           true,
		`"\uD83D\uDE00 \u00e4"`:    true,
		`"\ue000"`:                 true,
		`"\\\u0000"`:               false,
		`{"a":{"\u0000":[]}}`:      false,
		`"\ud83d"`:                 false,
		`"\ud83d x"`:               false,
		`"\ud83d\n\ude00"`:         false,
		`"\ude00"`:                 false,
		`"\ude00\ud83d"`:           false,
		`"\ud83d\ud83d\ude00"`:     false,
		`"\ud83d\u0041"`:           false,
		`{`:                        false,
		`{} `:                      true,
		`{}{}`:                     false,
		"\"\x00\"":                 false,
		"\"\xff\"":                 false,
		"\xef\xbb\xbf{}":           false,
		`{"text":"a","text":"b"}`:  true,
		`"` + "\xed\xa0\x80" + `"`: false,
	} {
		var c checker
		c.json("value", json.RawMessage(value))
		if ok {
			require.NoError(t, c.err, value)
		} else {
			require.ErrorIs(t, c.err, store.ErrRejected, value)
		}
	}
}

func TestChecker_CountsArrays(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int{``: 0, `[]`: 0, `["a",{"b":[1,2]}]`: 2} {
		var c checker
		require.Equal(t, want, c.array("ids", json.RawMessage(value)), value)
		require.NoError(t, c.err, value)
	}
	for _, value := range []string{`null`, `{}`, `"a"`, `[`} {
		var c checker
		c.array("ids", json.RawMessage(value))
		require.ErrorIs(t, c.err, store.ErrRejected, value)
	}
}

func TestChecker_KeepsTheFirstReason(t *testing.T) {
	t.Parallel()
	var c checker
	c.text("uid", "fine", "a\x00b")
	c.json("body", json.RawMessage(`{`))
	require.EqualError(t, c.err, "store: content rejected: uid: NUL byte")
}
