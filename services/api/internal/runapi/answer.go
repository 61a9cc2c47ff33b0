package runapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Store is what the answers come from.
type Store interface {
	Session(ctx context.Context, skey string) (store.Session, error)
	Run(ctx context.Context, id uuid.UUID) (store.Run, error)
	RunReplies(ctx context.Context, id uuid.UUID) ([]store.Reply, error)
	RunMessages(ctx context.Context, id uuid.UUID) ([]store.Message, error)
	InboxAfter(ctx context.Context, skey string, seq int64) ([]store.InboxRow, error)
	Submission(ctx context.Context, skey, msgUID string) (store.Submission, error)
}

// answer is what the store knows about a target.
type answer struct {
	// run is the zero Run where the message has none, yet or at all.
	run store.Run
	// notice answers a message that wants no run.
	notice json.RawMessage
	// code says why the message was not answered: it was refused, or its run answered a newer one instead.
	code string
}

// Why an admitted message was not answered.
const (
	CodeRefused    = "message_refused"
	CodeSuperseded = "message_superseded"
)

// read looks up what the store knows. Before the message is admitted that is nothing.
func read(ctx context.Context, s Store, t Target) (answer, error) {
	if t.RunID != uuid.Nil {
		run, err := s.Run(ctx, t.RunID)
		if err != nil {
			return answer{}, fmt.Errorf("read run: %w", err)
		}
		return answer{run: run}, nil
	}
	sub, err := s.Submission(ctx, t.SKey, t.UID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return answer{}, nil
	case err != nil:
		return answer{}, fmt.Errorf("read submission: %w", err)
	case sub.Kind == store.KindRefused:
		return answer{notice: sub.Notice, code: CodeRefused}, nil
	case sub.Kind == store.KindStop && len(sub.Notice) == 0:
		// The answer that it ends confirms it. The row itself is covered by whatever run comes next.
		return answer{notice: stopping()}, nil
	case sub.Kind != store.KindUser && len(sub.Notice) > 0:
		// The row is covered by some run all the same; that run answers another message.
		return answer{notice: sub.Notice}, nil
	}
	if sub.Superseded {
		return answer{code: CodeSuperseded}, nil
	}
	return answer{run: sub.Run}, nil
}

// stopping is what a stop that has found a run is answered with.
func stopping() json.RawMessage {
	return channel.EncodeParts(channel.Part{Markdown: "Stopping. The answer that is stopped says when it has ended.", Notice: true})
}

// final is the last event of a target; ok is false while there is none.
func final(ctx context.Context, s Store, t Target) (e Event, ok bool, err error) {
	a, err := read(ctx, s, t)
	if err != nil {
		return Event{}, false, err
	}
	if a.ended() == "" {
		return Event{}, false, nil
	}
	e = Event{Kind: a.ended(), RunID: a.runID(), Usage: usage(a.run.Usage), Code: a.code}
	e.Text, err = a.text(ctx, s)
	return e, err == nil, err
}

// ended is the kind of the final event, "" if there is none yet.
func (a answer) ended() Kind {
	switch {
	case a.code == CodeRefused:
		return Failed
	case a.code == CodeSuperseded:
		return Cancelled
	case a.notice != nil, a.run.State == store.RunDone:
		return Done
	case a.run.State == store.RunCancelled:
		return Cancelled
	case a.run.State == store.RunFailed, a.run.State == store.RunDead:
		return Failed
	default:
		return ""
	}
}

// state is that of the run in the words of events, where it has ended.
func (a answer) state() string {
	switch {
	case a.ended() != "":
		return string(a.ended())
	case a.run.ID == uuid.Nil: // the message waits for its turn
		return string(store.RunQueued)
	default:
		return string(a.run.State)
	}
}

func (a answer) runID() string {
	if a.run.ID == uuid.Nil {
		return ""
	}
	return a.run.ID.String()
}

// text is what was committed: the parts of the replies, divided by blank lines.
func (a answer) text(ctx context.Context, s Store) (string, error) {
	switch {
	case a.notice != nil:
		return markdown(a.notice)
	case a.run.ID == uuid.Nil:
		return "", nil
	}
	replies, err := s.RunReplies(ctx, a.run.ID)
	if err != nil {
		return "", fmt.Errorf("read replies: %w", err)
	}
	var parts []json.RawMessage
	for _, r := range replies {
		if strings.HasPrefix(r.DKey, a.run.ID.String()+":") { // others tell about messages that the run did not answer
			parts = append(parts, r.Parts)
		}
	}
	return markdown(parts...)
}

func markdown(replies ...json.RawMessage) (string, error) {
	var texts []string
	for _, raw := range replies {
		var parts []channel.Part
		if err := json.Unmarshal(raw, &parts); err != nil {
			return "", fmt.Errorf("decode reply: %w", err)
		}
		for _, p := range parts {
			if p.Markdown != "" {
				texts = append(texts, p.Markdown)
			}
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

// usage drops the null of runs that have none.
func usage(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}
