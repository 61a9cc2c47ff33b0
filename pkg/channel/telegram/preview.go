package telegram

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
)

const (
	// draftEvery and editEvery keep previews below the limits of a chat and of a group.
	draftEvery  = time.Second
	editEvery   = 3 * time.Second
	typingEvery = 5 * time.Second
)

// PreviewEvery is a second for drafts in private chats and three for edits in groups; 0, none, for bots whose streaming
// is off.
func (s *Sender) PreviewEvery(target event.Address) time.Duration {
	switch {
	case !s.streams(target):
		return 0
	case isPrivate(target):
		return draftEvery
	default:
		return editEvery
	}
}

func (s *Sender) streams(target event.Address) bool {
	cfg, ok := s.bots[target.Account]
	return ok && cfg.Streaming != streamingOff
}

// Preview shows a draft in private chats, which goes away by itself; in groups it sends a message and edits it. Bots
// whose streaming is off show nothing.
func (s *Sender) Preview(ctx context.Context, p channel.Preview) (string, error) {
	api, err := s.api(p.Target)
	if err != nil {
		return p.ID, err
	}
	f := head(p.Text)
	switch {
	case !s.streams(p.Target):
		return p.ID, nil
	case isPrivate(p.Target):
		return "", classify(api.draft(ctx, p, f), p.Target.ChatID)
	case f.html == "":
		return p.ID, nil
	case p.ID == "":
		id, err := api.sendText(ctx, place(p.Target).answering(p.Target), f)
		return id, classify(err, p.Target.ChatID)
	default:
		return p.ID, classify(api.edit(ctx, p.Target, p.ID, f, nil), p.Target.ChatID)
	}
}

// draft shows f for 30 seconds, with a button to stop. An empty one says that somebody is thinking.
func (a *API) draft(ctx context.Context, p channel.Preview, f formatted) error {
	args := place(p.Target)
	args["draft_id"], args["can_stop"] = draftID(p.RunID), true
	args["text"], args["parse_mode"] = f.html, "HTML"
	err := a.call(ctx, "sendMessageDraft", args, nil)
	if refused(err, textCannotParse) {
		delete(args, "parse_mode")
		args["text"] = f.plain
		return a.call(ctx, "sendMessageDraft", args, nil)
	}
	return err
}

// draftID is the same for all drafts of a run, positive and below 2^31.
func draftID(runID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(runID)) // hash.Hash never returns an error
	return max(int64(h.Sum32()>>1), 1)
}

// DeletePreview deletes the message of a preview.
func (s *Sender) DeletePreview(ctx context.Context, target event.Address, id string) error {
	if id == "" {
		return nil
	}
	api, err := s.api(target)
	if err != nil {
		return err
	}
	return classify(api.remove(ctx, target, id), target.ChatID)
}

// TypingEvery is how long Telegram shows the sign.
func (s *Sender) TypingEvery() time.Duration { return typingEvery }

// Typing shows "typing".
func (s *Sender) Typing(ctx context.Context, target event.Address) error {
	api, err := s.api(target)
	if err != nil {
		return err
	}
	args := place(target)
	args["action"] = "typing"
	return classify(api.call(ctx, "sendChatAction", args, nil), target.ChatID)
}
