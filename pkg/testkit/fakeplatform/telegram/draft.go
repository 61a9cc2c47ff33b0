package telegram

import (
	"time"
)

// Draft is one state of an answer that is shown while it is being written.
type Draft struct {
	ID         int64
	Text, HTML string
	Thread     int64
	At         time.Time
}

// Action is one sign such as "typing".
type Action struct {
	Name   string
	Thread int64
	At     time.Time
}

// draftLife is how long a draft is shown without being refreshed.
const draftLife = 30 * time.Second

// Drafts are all states of drafts that a chat was sent, in order.
func (s *Server) Drafts(chat int64) []Draft {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Draft(nil), s.chat(chat).drafts...)
}

// Draft is the one that is shown now: a message of the bot, or time, takes it away.
func (s *Server) Draft(chat int64) (Draft, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.chat(chat).draft
	if d == nil || time.Since(d.At) > draftLife {
		return Draft{}, false
	}
	return *d, true
}

// Typing are the chat actions that a chat was sent, in order.
func (s *Server) Typing(chat int64) []Action {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Action(nil), s.chat(chat).actions...)
}

func (s *Server) sendMessageDraft(c *call) (any, *apiError) {
	chat := s.chat(c.number("chat_id"))
	f, err := c.formatted("text")
	switch {
	case err != nil:
		return nil, err
	case chat.id <= 0:
		return nil, badRequest("message drafts can be sent only to private chats")
	case c.number("draft_id") == 0:
		return nil, badRequest("draft_id must be non-zero")
	case units(f.text) > maxText:
		return nil, badRequest("message is too long")
	}
	d := Draft{ID: c.number("draft_id"), Text: f.text, HTML: f.html, At: time.Now()}
	if d.Thread, err = chat.thread(c); err != nil {
		return nil, err
	}
	chat.drafts, chat.draft = append(chat.drafts, d), &d
	return true, nil
}

func (s *Server) sendChatAction(c *call) (any, *apiError) {
	chat := s.chat(c.number("chat_id"))
	thread, err := chat.thread(c)
	if err != nil {
		return nil, err
	}
	switch c.args["action"] {
	case "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice", "upload_document",
		"choose_sticker", "find_location", "record_video_note", "upload_video_note":
	default:
		return nil, badRequest("wrong parameter action in request")
	}
	chat.actions = append(chat.actions, Action{Name: c.args["action"], Thread: thread, At: time.Now()})
	return true, nil
}
