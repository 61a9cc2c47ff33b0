package hooks

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

// payload is the body that a hook gets. Every member is always there but content.
type payload struct {
	// ID is the same when the event comes twice.
	ID     string `json:"id"`
	Type   string `json:"type"`
	Tenant string `json:"tenant"`
	SKey   string `json:"skey"`
	MsgUID string `json:"msg_uid"`
	RunID  string `json:"run_id"`
	// (gen, n) orders the events of a run, out_seq those of a delivery.
	Gen          int64     `json:"gen"`
	N            int64     `json:"n"`
	OutSeq       int64     `json:"out_seq"`
	At           time.Time `json:"at"`
	Outcome      string    `json:"outcome"`
	Address      address   `json:"address"`
	Profile      string    `json:"profile"`
	Name         string    `json:"name"`
	CallID       string    `json:"call_id"`
	DurationUS   int64     `json:"duration_us"`
	Size         int64     `json:"size"`
	InputTokens  int64     `json:"input_tokens"`
	OutputTokens int64     `json:"output_tokens"`
	Content      string    `json:"content,omitempty"`
}

type address struct {
	Platform string `json:"platform"`
	Account  string `json:"account"`
	ChatID   string `json:"chat_id"`
	ThreadID string `json:"thread_id"`
}

// encode returns the body; content says whether it may hold what people wrote.
func encode(ev *event.Lifecycle, content bool) ([]byte, error) {
	p := payload{
		ID: hook.EventID(ev), Type: string(ev.Type), Tenant: ev.Tenant, SKey: ev.SKey, MsgUID: ev.MsgUID, RunID: ev.RunID,
		Gen: ev.Gen, N: ev.N, OutSeq: ev.OutSeq, At: ev.At.UTC(), Outcome: ev.Outcome,
		Address: address{ev.Address.Platform, ev.Address.Account, ev.Address.ChatID, ev.Address.ThreadID},
		Profile: ev.Profile, Name: ev.Name, CallID: ev.CallID, DurationUS: ev.Duration.Microseconds(), Size: ev.Size,
		InputTokens: ev.InputTokens, OutputTokens: ev.OutputTokens,
	}
	if content {
		p.Content = ev.Content
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("encode event: %w", err)
	}
	return raw, nil
}
