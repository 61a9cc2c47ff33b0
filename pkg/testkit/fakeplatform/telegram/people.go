package telegram

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
)

// Say lets a person write, as a client would send it: with the entities that it finds. It returns the message's id.
func (s *Server) Say(chat, user int64, text string) int64 {
	return s.Send(chat, user, map[string]any{"text": text})
}

// Reply is Say as an answer to a message, which is quoted as it stands in the chat.
func (s *Server) Reply(chat, user, to int64, text string) int64 {
	s.mu.Lock()
	quoted := s.chat(chat).find(to)
	s.mu.Unlock()
	fields := map[string]any{"text": text, "reply_to_message": map[string]any{"message_id": to, "chat": chatObject(chat)}}
	if quoted != nil {
		fields["reply_to_message"] = s.object(quoted)
	}
	return s.Send(chat, user, fields)
}

// Send lets a person send a message of any kind: fields are added to, or replace, those of a plain one. It returns the
// message's id.
func (s *Server) Send(chat, user int64, fields map[string]any) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := map[string]any{
		"message_id": s.chat(chat).nextID, "date": time.Now().Unix(), "chat": chatObject(chat), "from": person(user),
	}
	maps.Copy(m, fields)
	if text, ok := m["text"].(string); ok && m["entities"] == nil {
		if found := detect(text); len(found) > 0 {
			m["entities"] = found
		}
	}
	s.push(map[string]json.RawMessage{"message": encode(m)})
	id, _ := m["message_id"].(int64) // a test that gives its own knows it
	return id
}

// Edit lets a person change the text of a message.
func (s *Server) Edit(chat, user, id int64, text string) {
	now := time.Now().Unix()
	m := map[string]any{
		"message_id": id, "date": now, "edit_date": now, "chat": chatObject(chat), "from": person(user), "text": text,
	}
	if found := detect(text); len(found) > 0 {
		m["entities"] = found
	}
	s.Push(map[string]any{"edited_message": m})
}

// Press lets a person press a button of a message that the bot has sent, and returns the id of the callback query.
func (s *Server) Press(chat, user, message int64, data string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := strconv.Itoa(3_007_007_007 + len(s.queries))
	s.queries[id] = &query{}
	m := map[string]any{"message_id": message, "date": 0, "chat": chatObject(chat)} // what is left of an old message
	if shown := s.chat(chat).find(message); shown != nil {
		m = s.object(shown)
	}
	s.push(map[string]json.RawMessage{"callback_query": encode(map[string]any{
		"id": id, "from": person(user), "message": m, "chat_instance": "1", "data": data,
	})})
	return id
}

// Topic opens a topic of a forum, or of a private chat.
func (s *Server) Topic(chat, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chat(chat).topics[id] = true
}

// DeleteTopic deletes a topic and its messages.
func (s *Server) DeleteTopic(chat, id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.chat(chat)
	delete(c.topics, id)
	c.messages = slices.DeleteFunc(c.messages, func(m *Message) bool { return m.Thread == id })
}

// Block lets the people of a chat shut the bot out, and tells the bot.
func (s *Server) Block(chat int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chat(chat).blocked = true
	s.push(map[string]json.RawMessage{"my_chat_member": encode(map[string]any{
		"chat": chatObject(chat), "from": person(max(chat, 1)), "date": time.Now().Unix(),
		"old_chat_member": map[string]any{"status": "member", "user": s.bot()},
		"new_chat_member": map[string]any{"status": "kicked", "user": s.bot(), "until_date": 0},
	})})
}

// Gone makes a chat unknown.
func (s *Server) Gone(chat int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chat(chat).gone = true
}

// Migrate makes a group a supergroup: calls for from are refused with the new id. It tells the bot nothing; push the
// service messages for that.
func (s *Server) Migrate(from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chat(from).movedTo = to
}

// query is a pressed button.
type query struct {
	answered bool
	text     string
}

// Pressed tells whether the bot has answered a press, and with which text.
func (s *Server) Pressed(id string) (text string, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queries[id]; q != nil {
		return q.text, q.answered
	}
	return "", false
}

func (s *Server) answerCallbackQuery(c *call) (any, *apiError) {
	q := s.queries[c.args["callback_query_id"]]
	if q == nil || q.answered {
		return nil, badRequest("query is too old and response timeout expired or query ID is invalid")
	}
	q.answered, q.text = true, c.args["text"]
	return true, nil
}

func person(id int64) map[string]any {
	return map[string]any{"id": id, "is_bot": false, "first_name": fmt.Sprintf("User%d", id), "language_code": "en"}
}

func (s *Server) bot() map[string]any {
	return map[string]any{"id": s.botID, "is_bot": true, "first_name": "Agent", "username": s.opts.Username}
}

func chatObject(id int64) map[string]any {
	switch {
	case id > 0:
		return map[string]any{"id": id, "type": "private", "first_name": fmt.Sprintf("User%d", id)}
	case strings.HasPrefix(strconv.FormatInt(id, 10), "-100"):
		return map[string]any{"id": id, "type": "supergroup", "title": fmt.Sprintf("Group%d", -id)}
	default:
		return map[string]any{"id": id, "type": "group", "title": fmt.Sprintf("Group%d", -id)}
	}
}

// Entity is a stretch of a text that means something. Offset and Length count UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
}

// special are the commands and mentions that clients find by themselves. What stands before one is part of the match.
var special = regexp.MustCompile(`(^|[^\pL\pN_/@])(/[A-Za-z0-9_]{1,32}(?:@[A-Za-z0-9_]{3,32})?|@[A-Za-z0-9_]{4,32})`)

func detect(text string) []Entity {
	var found []Entity
	for _, at := range special.FindAllStringSubmatchIndex(text, -1) {
		word, kind := text[at[4]:at[5]], "mention"
		if word[0] == '/' {
			kind = "bot_command"
		}
		found = append(found, Entity{Type: kind, Offset: units(text[:at[4]]), Length: units(word)})
	}
	return found
}

// units counts UTF-16 code units.
func units(text string) int { return len(utf16.Encode([]rune(text))) }
