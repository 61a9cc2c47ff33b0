package telegram

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Message is what a person sees of one message now.
type Message struct {
	ID, Chat int64
	// From is who wrote it, Bot whether that is the bot.
	From int64
	Bot  bool
	// Kind is text, photo, document or other.
	Kind string
	// Text is the plain text or caption, HTML its source if it was sent as such.
	Text, HTML string
	Entities   []Entity
	// Thread is the topic, ReplyTo the message that it answers; 0 for none.
	Thread, ReplyTo int64
	Edited          bool
	Buttons         [][]Button
	// File is the file_id, or the URL that the bot gave.
	File     string
	FileName string
	At       time.Time
}

// Button stands below a message.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data,omitempty"`
	URL  string `json:"url,omitempty"`
}

// chat is one conversation.
type chat struct {
	id            int64
	nextID        int64
	messages      []*Message
	topics        map[int64]bool
	drafts        []Draft
	draft         *Draft
	actions       []Action
	sends         []time.Time
	frozen        time.Time
	blocked, gone bool
	movedTo       int64
}

// chat returns the chat with this id; the caller holds the lock.
func (s *Server) chat(id int64) *chat {
	c := s.chats[id]
	if c == nil {
		c = &chat{id: id, nextID: 1, topics: map[int64]bool{}}
		s.chats[id] = c
	}
	return c
}

func (ch *chat) find(id int64) *Message {
	for _, m := range ch.messages {
		if m.ID == id {
			return m
		}
	}
	return nil
}

// Transcript is what the people in a chat see now, in order; deleted messages are gone.
func (s *Server) Transcript(chat int64) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Message
	for _, m := range s.chat(chat).messages {
		out = append(out, *m)
	}
	return out
}

// Answers are the texts of the bot in a chat, in order.
func (s *Server) Answers(chat int64) []string {
	var texts []string
	for _, m := range s.Transcript(chat) {
		if m.Bot {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// remember puts the message of an update into its chat, or its new text.
func (s *Server) remember(kind string, raw json.RawMessage) {
	var in struct {
		MessageID int64 `json:"message_id"`
		Chat      struct{ ID int64 }
		From      struct{ ID int64 }
		Text      string
		Caption   string
		Thread    int64 `json:"message_thread_id"`
		Topic     bool  `json:"is_topic_message"`
		ReplyTo   struct {
			ID int64 `json:"message_id"`
		} `json:"reply_to_message"`
		Entities []Entity
	}
	if kind != "message" && kind != "edited_message" || json.Unmarshal(raw, &in) != nil {
		return // an update that no person sees, or a broken one
	}
	c := s.chat(in.Chat.ID)
	c.nextID = max(c.nextID, in.MessageID+1)
	if m := c.find(in.MessageID); m != nil {
		m.Text, m.Entities, m.Edited = in.Text+in.Caption, in.Entities, true
		return
	}
	m := &Message{
		ID: in.MessageID, Chat: in.Chat.ID, From: in.From.ID, Kind: "text", Text: in.Text + in.Caption, Entities: in.Entities,
		ReplyTo: in.ReplyTo.ID, At: time.Now(),
	}
	if in.Text == "" {
		m.Kind = "other"
	}
	if in.Topic {
		m.Thread = in.Thread
	}
	c.messages = append(c.messages, m)
}

// checkChat refuses calls for chats that the bot cannot reach.
func (s *Server) checkChat(c *call) *apiError {
	if c.args["chat_id"] == "" {
		return nil
	}
	chat := s.chat(c.number("chat_id"))
	switch {
	case chat.id == 0 || chat.gone:
		return badRequest("chat not found")
	case chat.movedTo != 0:
		return Answer{MigrateTo: chat.movedTo}.withDefaults().refusal()
	case chat.blocked && chat.id > 0:
		return &apiError{code: http.StatusForbidden, text: "Forbidden: bot was blocked by the user"}
	case chat.blocked:
		return &apiError{code: http.StatusForbidden, text: "Forbidden: bot was kicked from the group chat"}
	case strings.HasPrefix(c.name, "send") || strings.HasPrefix(c.name, "edit"):
		return s.checkRate(chat, c)
	}
	return nil
}

const (
	maxText    = 4096
	maxCaption = 1024
	// general is the topic that has no id: sending to it by this one is refused.
	general = 1
)

func (s *Server) sendMessage(c *call) (any, *apiError) {
	f, err := c.formatted("text")
	switch {
	case err != nil:
		return nil, err
	case f.text == "":
		return nil, badRequest("message text is empty")
	case units(f.text) > maxText:
		return nil, badRequest("message is too long")
	}
	return s.place(c, Message{Kind: "text", Text: f.text, HTML: f.html, Entities: f.entities})
}

// place puts a message of the bot into its chat.
func (s *Server) place(c *call, m Message) (any, *apiError) {
	chat := s.chat(c.number("chat_id"))
	if chat.id == 0 {
		return nil, badRequest("chat_id is empty")
	}
	var err *apiError
	if m.Thread, err = chat.thread(c); err != nil {
		return nil, err
	}
	if m.ReplyTo, err = chat.replyTo(c); err != nil {
		return nil, err
	}
	if m.Buttons, err = c.buttons(); err != nil {
		return nil, err
	}
	m.ID, m.Chat, m.From, m.Bot, m.At = chat.nextID, chat.id, s.botID, true, time.Now()
	chat.nextID++
	chat.messages = append(chat.messages, &m)
	chat.draft = nil
	return s.object(&m), nil
}

// thread checks the topic that a call names.
func (ch *chat) thread(c *call) (int64, *apiError) {
	id := c.number("message_thread_id")
	if id != 0 && (id == general || !ch.topics[id]) {
		return 0, badRequest("message thread not found")
	}
	return id, nil
}

func (ch *chat) replyTo(c *call) (int64, *apiError) {
	var p struct {
		MessageID int64 `json:"message_id"`
		Allow     bool  `json:"allow_sending_without_reply"`
	}
	if err := c.object("reply_parameters", &p); err != nil {
		return 0, err
	}
	switch {
	case p.MessageID == 0 || ch.find(p.MessageID) != nil:
		return p.MessageID, nil
	case p.Allow:
		return 0, nil
	default:
		return 0, badRequest("message to be replied not found")
	}
}

const maxButtonData = 64

func (c *call) buttons() ([][]Button, *apiError) {
	var markup struct {
		Rows [][]Button `json:"inline_keyboard"`
	}
	if err := c.object("reply_markup", &markup); err != nil {
		return nil, err
	}
	for _, b := range slices.Concat(markup.Rows...) {
		switch {
		case b.Text == "":
			return nil, badRequest("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard")
		case (b.Data == "") == (b.URL == ""), len(b.Data) > maxButtonData:
			return nil, badRequest("BUTTON_DATA_INVALID")
		}
	}
	return markup.Rows, nil
}

// own finds the message that a call wants to change.
func (s *Server) own(c *call, missing string) (*Message, *apiError) {
	m := s.chat(c.number("chat_id")).find(c.number("message_id"))
	switch {
	case m == nil:
		return nil, badRequest("%s", missing)
	case !m.Bot:
		return nil, badRequest("message can't be edited")
	default:
		return m, nil
	}
}

func (s *Server) editMessageText(c *call) (any, *apiError) {
	m, err := s.own(c, "message to edit not found")
	if err != nil {
		return nil, err
	}
	f, err := c.formatted("text")
	switch {
	case err != nil:
		return nil, err
	case f.text == "":
		return nil, badRequest("message text is empty")
	case units(f.text) > maxText:
		return nil, badRequest("message is too long")
	case m.Kind != "text":
		return nil, badRequest("there is no text in the message to edit")
	}
	return s.change(c, m, f)
}

func (s *Server) editMessageReplyMarkup(c *call) (any, *apiError) {
	m, err := s.own(c, "message to edit not found")
	if err != nil {
		return nil, err
	}
	return s.change(c, m, formatted{text: m.Text, html: m.HTML, entities: m.Entities})
}

func (s *Server) change(c *call, m *Message, f formatted) (any, *apiError) {
	buttons, err := c.buttons()
	if err != nil {
		return nil, err
	}
	same := slices.EqualFunc(buttons, m.Buttons, slices.Equal[[]Button])
	if same && m.Text == f.text && slices.Equal(m.Entities, f.entities) {
		return nil, badRequest("message is not modified: specified new message content and reply markup are exactly the same " +
			"as a current content and reply markup of the message")
	}
	m.Text, m.HTML, m.Entities, m.Buttons, m.Edited = f.text, f.html, f.entities, buttons, true
	return s.object(m), nil
}

func (s *Server) deleteMessage(c *call) (any, *apiError) {
	chat := s.chat(c.number("chat_id"))
	m := chat.find(c.number("message_id"))
	if m == nil {
		return nil, badRequest("message to delete not found")
	}
	chat.messages = slices.DeleteFunc(chat.messages, func(other *Message) bool { return other == m })
	return true, nil
}

// object is the JSON form of a message.
func (s *Server) object(m *Message) map[string]any {
	o := map[string]any{"message_id": m.ID, "date": m.At.Unix(), "chat": chatObject(m.Chat), "from": person(m.From)}
	if m.Bot {
		o["from"] = s.bot()
	}
	text, entities := "text", "entities"
	if m.Kind != "text" {
		text, entities = "caption", "caption_entities"
	}
	if m.Text != "" {
		o[text] = m.Text
	}
	if len(m.Entities) > 0 {
		o[entities] = m.Entities
	}
	if m.Thread != 0 {
		o["message_thread_id"], o["is_topic_message"] = m.Thread, true
	}
	if m.ReplyTo != 0 {
		o["reply_to_message"] = map[string]any{"message_id": m.ReplyTo, "date": m.At.Unix(), "chat": chatObject(m.Chat)}
	}
	if len(m.Buttons) > 0 {
		o["reply_markup"] = map[string]any{"inline_keyboard": m.Buttons}
	}
	if m.Edited {
		o["edit_date"] = time.Now().Unix()
	}
	switch m.Kind {
	case "photo":
		o["photo"] = []map[string]any{{"file_id": m.File, "file_unique_id": m.File, "width": 90, "height": 90}}
	case "document":
		o["document"] = map[string]any{"file_id": m.File, "file_unique_id": m.File, "file_name": m.FileName}
	}
	return o
}
