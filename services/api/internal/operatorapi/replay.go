package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// replayed is the answer to Replay.
type replayed struct {
	ID     string `json:"id"`
	Replay int    `json:"replay"`
	// Messages are the uids under which messages were accepted again.
	Messages []string `json:"msg_uids,omitempty"`
	// OutSeq is the new row of a reply.
	OutSeq int64 `json:"out_seq,omitempty"`
}

// Replay sends what a dead letter holds once more: messages as new messages of their session, a reply as a new row behind
// the others. History is never rewritten, and what was answered stays answered.
func (h *Handler) Replay(w http.ResponseWriter, r *http.Request) error {
	id, err := pathID(r)
	if err != nil {
		return err
	}
	l, err := h.Store.DeadLetter(r.Context(), id)
	if err != nil {
		return clientError("dead letter", err)
	}
	send, err := replayOf(l)
	if err != nil {
		return conflict("not_replayable", err.Error())
	}
	if l, err = h.Store.CountReplay(r.Context(), id); err != nil {
		return clientError("dead letter", err)
	}
	answer := replayed{ID: id.String(), Replay: l.Replays}
	if err := send(r.Context(), h, fmt.Sprintf("#r%d", l.Replays), &answer); err != nil {
		return err
	}
	h.did(r, "replay", "id", id, "kind", l.Kind)
	httpapi.WriteJSON(w, http.StatusAccepted, answer)
	return nil
}

// replay sends what a letter holds; suffix makes its ids those of this replay.
type replay func(ctx context.Context, h *Handler, suffix string, answer *replayed) error

// replayOf reads a letter before anything is changed: its error says why it cannot be replayed.
func replayOf(l store.StoredLetter) (replay, error) {
	switch l.Kind {
	case store.DeadKindIngress:
		return entryReplay(l.Payload)
	case store.DeadKindRun:
		return runReplay(l.Payload)
	case store.DeadKindDelivery:
		return deliveryReplay(l.Payload)
	default:
		return nil, fmt.Errorf("letters of kind %q are not known", l.Kind)
	}
}

// entryReplay accepts a message again that could not be admitted. One that could not be read never can.
func entryReplay(payload json.RawMessage) (replay, error) {
	var entry struct {
		Data []byte `json:"data"`
	}
	if err := json.Unmarshal(payload, &entry); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	m, err := event.Decode(entry.Data)
	if err != nil {
		return nil, fmt.Errorf("the message cannot be read: %w", err)
	}
	return acceptAll([]*event.Message{m}), nil
}

func runReplay(payload json.RawMessage) (replay, error) {
	var dead store.DeadRun
	if err := json.Unmarshal(payload, &dead); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	messages := make([]*event.Message, len(dead.Rows))
	for i, row := range dead.Rows {
		messages[i] = &event.Message{}
		if err := json.Unmarshal(row, messages[i]); err != nil {
			return nil, fmt.Errorf("message %d cannot be read: %w", i+1, err)
		}
	}
	return acceptAll(messages), nil
}

// acceptAll accepts messages in order under ids of their own.
func acceptAll(messages []*event.Message) replay {
	return func(ctx context.Context, h *Handler, suffix string, answer *replayed) error {
		for _, m := range messages {
			if err := h.attach(ctx, m); err != nil {
				return err
			}
			m.UID += suffix
			if _, err := h.Acceptor.Accept(ctx, m); err != nil {
				return httpapi.FromAccept(err, nil)
			}
			answer.Messages = append(answer.Messages, m.UID)
		}
		return nil
	}
}

// attach completes a message whose content is in the object store.
func (h *Handler) attach(ctx context.Context, m *event.Message) error {
	if m.BlobRef == "" {
		return nil
	}
	data, err := h.Bus.GetObject(ctx, m.BlobRef)
	switch {
	case errors.Is(err, bus.ErrNotFound):
		return conflict("not_replayable", "the content of the message is no longer kept")
	case err != nil:
		return clientError("object", err)
	}
	return m.Attach(data)
}

func deliveryReplay(payload json.RawMessage) (replay, error) {
	var dead store.DeadDelivery
	if err := json.Unmarshal(payload, &dead); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	return func(ctx context.Context, h *Handler, suffix string, answer *replayed) error {
		row, err := h.Store.Redeliver(ctx, dead.SKey, store.NewReply{
			DKey: dead.DKey + suffix, Platform: dead.Platform, Target: dead.Target, Parts: dead.Parts,
		})
		if err != nil {
			return clientError("session", err)
		}
		answer.OutSeq = row.OutSeq
		return nil
	}, nil
}
