package pgstore

import (
	"encoding/json"
	"fmt"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// jsonb is the value of a jsonb parameter; empty is NULL.
func jsonb(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return nil
	}
	return raw
}

// The objects of the json arrays that Checkpoint and Finish take apart. What is left out becomes NULL.
type messageJSON struct {
	Branch   int             `json:"branch"`
	N        int             `json:"n"`
	Role     string          `json:"role"`
	Content  json.RawMessage `json:"content,omitempty"`
	InboxSeq int64           `json:"inbox_seq,omitempty"`
}

type toolCallJSON struct {
	CallID string          `json:"call_id"`
	Name   string          `json:"name"`
	Effect string          `json:"effect"`
	State  store.ToolState `json:"state"`
	Result json.RawMessage `json:"result,omitempty"`
}

type replyJSON struct {
	DKey     string          `json:"dkey,omitempty"`
	Platform string          `json:"platform"`
	Target   json.RawMessage `json:"target,omitempty"`
	Parts    json.RawMessage `json:"parts,omitempty"`
	State    store.OutState  `json:"state"`
}

func newReplyJSON(r *store.NewReply) replyJSON {
	out := replyJSON{DKey: r.DKey, Platform: r.Platform, Target: r.Target, Parts: r.Parts, State: store.OutPending}
	if r.Read {
		out.State = store.OutSent
	}
	return out
}

func messagesJSON(msgs []store.Message) ([]byte, error) {
	return encode("messages", column(msgs, func(m *store.Message) messageJSON {
		return messageJSON{Branch: m.Branch, N: m.N, Role: m.Role, Content: m.Content, InboxSeq: m.InboxSeq}
	}))
}

func toolCallsJSON(calls []store.ToolCall) ([]byte, error) {
	return encode("tool calls", column(calls, func(c *store.ToolCall) toolCallJSON { return toolCallJSON(*c) }))
}

func repliesJSON(replies []store.NewReply) ([]byte, error) {
	return encode("replies", column(replies, newReplyJSON))
}

// noticeJSON is NULL without a notice.
func noticeJSON(n *store.NewReply) ([]byte, error) {
	if n == nil {
		return nil, nil
	}
	return encode("notice", newReplyJSON(n))
}

// encode refuses invalid JSON of the caller as the database would. The error names no content.
func encode(what string, v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, rejected(fmt.Sprintf("%s: invalid JSON", what))
	}
	return raw, nil
}

// allRead reports whether nobody has to send any of the replies.
func allRead(replies []store.NewReply) bool {
	for i := range replies {
		if !replies[i].Read {
			return false
		}
	}
	return true
}
