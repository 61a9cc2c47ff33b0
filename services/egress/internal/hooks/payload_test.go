package hooks

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/event"
)

func full() *event.Lifecycle {
	return &event.Lifecycle{
		Type: event.LLMFinished, Tenant: "acme", SKey: "skey", MsgUID: "uid", RunID: "run", Gen: 3, N: 7, OutSeq: 0,
		At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)), Outcome: "ok",
		Address: event.Address{Platform: "telegram", Account: "bot", ChatID: "c", ThreadID: "t"},
		Profile: "default", Name: "m-1", CallID: "call", Duration: 1500 * time.Microsecond, Size: 12,
		InputTokens: 5, OutputTokens: 6, Content: "what was said",
	}
}

const fullBody = `{
	"id": "run:3:llm_finished:7", "type": "llm_finished", "tenant": "acme", "skey": "skey", "msg_uid": "uid", "run_id": "run",
	"gen": 3, "n": 7, "out_seq": 0, "at": "2026-01-02T02:04:05Z", "outcome": "ok",
	"address": {"platform": "telegram", "account": "bot", "chat_id": "c", "thread_id": "t"},
	"profile": "default", "name": "m-1", "call_id": "call", "duration_us": 1500, "size": 12, "input_tokens": 5, "output_tokens": 6
}`

func TestEncode_HoldsEveryFieldAndNoContent(t *testing.T) {
	t.Parallel()
	body, err := encode(full(), false)
	require.NoError(t, err)
	require.JSONEq(t, fullBody, string(body))
}

func TestEncode_HoldsContentWhereItIsAllowed(t *testing.T) {
	t.Parallel()
	body, err := encode(full(), true)
	require.NoError(t, err)
	var got struct{ Content string }
	require.NoError(t, json.Unmarshal(body, &got))
	require.Equal(t, "what was said", got.Content)
}

func TestEncode_AlwaysHasTheSameMembers(t *testing.T) {
	t.Parallel()
	body, err := encode(&event.Lifecycle{Type: event.MessageReceived, MsgUID: "uid"}, true)
	require.NoError(t, err)
	var got, want map[string]any
	require.NoError(t, json.Unmarshal(body, &got))
	require.NoError(t, json.Unmarshal([]byte(fullBody), &want))
	for member := range want {
		require.Contains(t, got, member)
	}
	require.Len(t, got, len(want))
	require.Equal(t, "uid:message_received", got["id"])
}
