package telegram

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strings"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
)

var (
	_ channel.Sender    = (*Sender)(nil)
	_ channel.Previewer = (*Sender)(nil)
	_ channel.Typer     = (*Sender)(nil)
	_ channel.Limiter   = (*Sender)(nil)
)

// Sender sends for all bots; the account of an address, the bot's id, picks one.
type Sender struct {
	bots   map[string]config.Telegram
	client *http.Client
}

// NewSender returns the sender of channels by name. It reads the tokens once, to fail early.
func NewSender(channels map[string]config.Telegram) (*Sender, error) {
	s := &Sender{bots: map[string]config.Telegram{}, client: NewClient()}
	for name, cfg := range channels {
		api, err := newAPI(cfg, s.client)
		if err != nil {
			return nil, fmt.Errorf("channel %s: %w", name, err)
		}
		if _, taken := s.bots[api.ID()]; taken {
			return nil, fmt.Errorf("channel %s: another channel has the same bot", name)
		}
		s.bots[api.ID()] = cfg.WithDefaults()
	}
	return s, nil
}

func newAPI(cfg config.Telegram, hc *http.Client) (*API, error) {
	token, err := cfg.Token.Value()
	if err != nil {
		return nil, err
	}
	return NewAPI(token, cfg.WithDefaults().APIURL, hc)
}

// Close ends idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Capability says that a second send shows a second message. Frames are wanted if any bot streams.
func (s *Sender) Capability() channel.Capability {
	c := channel.Capability{MaxUnits: maxText}
	for _, cfg := range s.bots {
		c.Streams = c.Streams || cfg.Streaming != streamingOff
	}
	return c
}

const streamingOff = "off"

// Rates of Telegram: messages a second of a bot and of a chat, and 20 a minute in a group.
const (
	botRate, botBurst     = 30, 30
	chatRate, chatBurst   = 1, 3
	groupRate, groupBurst = 20.0 / 60, 5
)

func chatBucket(id string) string { return "chat:" + id }

// Limits are those of the bot and of the chat.
func (s *Sender) Limits(target event.Address) []ratelimit.Bucket {
	chat := ratelimit.Bucket{Key: chatBucket(target.ChatID), Rate: chatRate, Burst: chatBurst}
	if !isPrivate(target) {
		chat.Rate, chat.Burst = groupRate, groupBurst
	}
	return []ratelimit.Bucket{{Key: "bot", Rate: botRate, Burst: botBurst}, chat}
}

// isPrivate: people have positive ids, groups and channels negative ones.
func isPrivate(target event.Address) bool {
	if kind := target.Extra[extraChatType]; kind != "" {
		return kind == chatDM
	}
	return !strings.HasPrefix(target.ChatID, "-")
}

// api returns the client of the target's bot. It reads the token anew, so that a rotated one is seen.
func (s *Sender) api(target event.Address) (*API, error) {
	cfg, ok := s.bots[target.Account]
	if !ok {
		return nil, permanent("no channel has this bot")
	}
	api, err := newAPI(cfg, s.client)
	if err != nil {
		return nil, &channel.SendError{Class: channel.Credential, Err: err}
	}
	if api.ID() != target.Account {
		return nil, &channel.SendError{Class: channel.Credential, Err: fmt.Errorf("the token is that of bot %s", api.ID())}
	}
	return api, nil
}

// Send sends one message or edits the one that the part names. Markup that Telegram refuses goes out once more as plain
// text; a message that cannot be edited is replaced by a new one. Nothing is repeated unless it was clearly refused.
func (s *Sender) Send(ctx context.Context, m channel.Send) (string, error) {
	api, err := s.api(m.Target)
	if err != nil {
		return "", err
	}
	keyboard, err := keyboardOf(m.Part.Actions)
	if err != nil {
		return "", err
	}
	var id string
	switch {
	case len(m.Part.Files) > 1:
		return "", permanent("a message holds one file")
	case len(m.Part.Files) == 1:
		id, err = api.sendFile(ctx, m, keyboard)
	case strings.TrimSpace(m.Part.Markdown) == "":
		return "", permanent("the message is empty")
	default:
		id, err = api.sendOrEdit(ctx, m, keyboard)
	}
	if err != nil {
		return "", classify(err, m.Target.ChatID)
	}
	return id, nil
}

// params are the arguments of a call.
type params map[string]any

// place says where a message goes. The General topic has the id 1, and is refused by it.
func place(target event.Address) params {
	p := params{"chat_id": numeric(target.ChatID)}
	if target.ThreadID != "" && target.ThreadID != "1" {
		p["message_thread_id"] = numeric(target.ThreadID)
	}
	return p
}

// answering shows in a group whom a reply is for. A question that was deleted is no reason to be silent.
func (p params) answering(target event.Address) params {
	if !isPrivate(target) && target.MessageID != "" {
		p["reply_parameters"] = params{"message_id": numeric(target.MessageID), "allow_sending_without_reply": true}
	}
	return p
}

func newMessage(m channel.Send, keyboard any) params {
	p := place(m.Target)
	if m.Number <= 1 {
		p = p.answering(m.Target)
	}
	return p.with("reply_markup", keyboard)
}

// with adds an argument unless it is nil.
func (p params) with(name string, value any) params {
	if value != nil {
		p[name] = value
	}
	return p
}

// maxButtonData is how many bytes a button can carry.
const maxButtonData = 64

// keyboardOf puts one button in each row; nil for none.
func keyboardOf(actions []channel.Action) (any, error) {
	if len(actions) == 0 {
		return nil, nil
	}
	rows := make([][]params, len(actions))
	for i, a := range actions {
		label := strings.TrimSpace(a.Label)
		if label == "" {
			label = a.ID
		}
		if a.ID == "" || len(a.ID) > maxButtonData {
			return nil, permanent("the id of a button has to have 1 to 64 bytes")
		}
		rows[i] = []params{{"text": label, "callback_data": a.ID}}
	}
	return params{"inline_keyboard": rows}, nil
}

func (a *API) sendOrEdit(ctx context.Context, m channel.Send, keyboard any) (string, error) {
	f := format(m.Part.Markdown, maxText)
	if m.Part.EditOf != "" {
		err := a.edit(ctx, m.Target, m.Part.EditOf, f, keyboard)
		if !refused(err, lostMessage()...) {
			return m.Part.EditOf, err
		}
	}
	return a.sendText(ctx, newMessage(m, keyboard), f)
}

func (a *API) sendText(ctx context.Context, p params, f formatted) (string, error) {
	p["link_preview_options"] = params{"is_disabled": true}
	return a.callFormatted(ctx, "sendMessage", p, "text", f)
}

// edit changes a message to f; one that is so already is fine.
func (a *API) edit(ctx context.Context, target event.Address, id string, f formatted, keyboard any) error {
	p := params{
		"chat_id": numeric(target.ChatID), "message_id": numeric(id), "link_preview_options": params{"is_disabled": true},
	}
	_, err := a.callFormatted(ctx, "editMessageText", p.with("reply_markup", keyboard), "text", f)
	if refused(err, textNotModified) {
		return nil
	}
	return err
}

// callFormatted calls a method with f as the argument name, first as HTML; if exactly the markup is refused, once more
// as plain text. It returns the id of the message.
func (a *API) callFormatted(ctx context.Context, method string, p params, name string, f formatted) (string, error) {
	p[name], p["parse_mode"] = f.html, "HTML"
	id, err := a.callMessage(ctx, method, p)
	if refused(err, textCannotParse) {
		delete(p, "parse_mode")
		p[name] = f.plain
		return a.callMessage(ctx, method, p)
	}
	return id, err
}

func (a *API) callMessage(ctx context.Context, method string, p params) (string, error) {
	var sent struct {
		ID int64 `json:"message_id"`
	}
	if err := a.call(ctx, method, p, &sent); err != nil {
		return "", err
	}
	return number(sent.ID), nil
}

// sendFile sends a file by URL or file id, with the text as caption. It cannot take the place of a text, which is
// deleted instead.
func (a *API) sendFile(ctx context.Context, m channel.Send, keyboard any) (string, error) {
	f := m.Part.Files[0]
	id, err := "", error(nil)
	asPhoto := isPhoto(f)
	if asPhoto {
		id, err = a.sendMedia(ctx, "photo", m, keyboard)
	}
	if !asPhoto || refused(err, noPhoto()...) {
		id, err = a.sendMedia(ctx, "document", m, keyboard)
	}
	if err == nil && m.Part.EditOf != "" {
		// What is left is a preview too many; sending the file again would be worse.
		_ = a.remove(ctx, m.Target, m.Part.EditOf)
	}
	return id, err
}

func (a *API) sendMedia(ctx context.Context, kind string, m channel.Send, keyboard any) (string, error) {
	method := map[string]string{"photo": "sendPhoto", "document": "sendDocument"}[kind]
	p := newMessage(m, keyboard)
	p[kind] = m.Part.Files[0].Ref
	if strings.TrimSpace(m.Part.Markdown) == "" {
		return a.callMessage(ctx, method, p)
	}
	return a.callFormatted(ctx, method, p, "caption", format(m.Part.Markdown, maxCaption))
}

// isPhoto: Telegram shows these as images; others, moving ones too, as files.
func isPhoto(f channel.File) bool {
	kind, _, err := mime.ParseMediaType(f.MIME)
	if err != nil {
		kind = mime.TypeByExtension(path.Ext(f.Name))
	}
	switch kind {
	case "image/jpeg", "image/png", "image/webp":
		return true
	default:
		return false
	}
}

// remove deletes a message; one that is gone, or too old to go, is left alone.
func (a *API) remove(ctx context.Context, target event.Address, id string) error {
	err := a.call(ctx, "deleteMessage", params{"chat_id": numeric(target.ChatID), "message_id": numeric(id)}, nil)
	if refused(err, textNoDelete, textCannotDelete) {
		return nil
	}
	return err
}
