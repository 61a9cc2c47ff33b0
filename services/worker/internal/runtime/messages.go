package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/inbox"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/turn"
)

// decode reads the messages of the prompt. The newest one carries the attachments of those that it replaces. It returns
// what is missing of messages that are not whole in the inbox.
func (r *run) decode() error {
	r.messages = make([]*event.Message, len(r.Prompt))
	stored := inbox.NamedRows(r.stored)
	var errs []error
	for i, row := range r.Prompt {
		m, err := r.message(r.hold, row)
		if err != nil && stored[row.Seq] { // the history has it
			m.Text, err = lostText, nil
		}
		r.messages[i] = m
		errs = append(errs, err)
	}
	newest := r.newest()
	if newest == nil {
		return nil
	}
	var carried []event.Attachment
	for _, row := range r.Superseded {
		m, err := r.message(r.hold, row)
		if err != nil {
			r.Logger.WarnContext(r.hold, "superseded message is not whole", "skey", r.SKey, "msg_uid", row.UID, "err", err)
		}
		r.replaced = append(r.replaced, m)
		carried = append(carried, m.Attachments...)
	}
	newest.Attachments = append(carried, newest.Attachments...)
	return errors.Join(errs...)
}

// message reads a row. One that cannot be read stands for itself as an empty message, which the pipeline rejects.
func (r *run) message(ctx context.Context, row store.InboxRow) (*event.Message, error) {
	m := &event.Message{}
	if err := json.Unmarshal(row.Body, m); err != nil {
		r.Logger.ErrorContext(ctx, "message unreadable", "skey", r.SKey, "run_id", r.RunID, "seq", row.Seq, "err", err)
		return &event.Message{}, nil
	}
	return m, r.complete(ctx, m)
}

// objectPatience bounds the wait for the object store.
const objectPatience = time.Minute

// errIncomplete: what a message says is in an object that cannot be had.
var errIncomplete = errors.New("message is incomplete")

// complete fetches what is too large for the inbox.
func (r *run) complete(ctx context.Context, m *event.Message) error {
	if m.BlobRef == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, objectPatience)
	defer cancel()
	data, err := again(ctx, bus.ErrUnavailable, func(ctx context.Context) ([]byte, error) {
		return r.Objects.GetObject(ctx, m.BlobRef)
	})
	if err == nil {
		err = m.Attach(data)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", errIncomplete, m.BlobRef, err)
	}
	return nil
}

// newest is the last message of the prompt: its address gets the reply, its sender owns what the tools do.
func (r *run) newest() *event.Message {
	if len(r.messages) == 0 {
		return nil
	}
	return r.messages[len(r.messages)-1]
}

func (r *run) address() event.Address {
	if m := r.newest(); m != nil {
		return m.ReplyTo
	}
	return event.Address{}
}

func (r *run) uids() []string {
	uids := make([]string, len(r.messages))
	for i, m := range r.messages {
		uids[i] = m.UID
	}
	return uids
}

// shared reports whether several people write in this conversation, or have written the messages of this run.
func (r *run) shared(m *event.Message) bool {
	others := slices.ContainsFunc(r.messages, func(o *event.Message) bool {
		return o.Source.Participant() != m.Source.Participant()
	})
	return others || r.profile != nil && session.SharedMultiUser(m.Source, r.profile.cfg.KeyOptions(r.profile.name))
}

func (r *run) input() turn.Input {
	in := turn.Input{RunID: r.RunID.String(), SKey: r.SKey}
	for i, m := range r.messages {
		in.Messages = append(in.Messages, r.turnMessage(r.Prompt[i].Seq, m))
	}
	return in
}

func (r *run) turnMessage(seq int64, m *event.Message) turn.Message {
	message := turn.Message{InboxSeq: seq, Text: m.Text, Attachments: m.Attachments, Quote: m.Quote}
	if r.shared(m) {
		message.Name = speaker(m.Source)
	}
	return message
}

func speaker(s session.Source) string {
	if strings.TrimSpace(s.UserName) != "" {
		return s.UserName
	}
	return s.Participant()
}
