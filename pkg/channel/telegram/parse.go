package telegram

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// Bot is whom updates are for.
type Bot struct {
	ID string
	// Username has no @.
	Username string
	// Groups says what addresses the bot in a group, [GroupsMention] (the default) or [GroupsAlways].
	Groups string
}

// Policies for groups: a mention, a reply to the bot or a command; or every message.
const (
	GroupsMention = "mention"
	GroupsAlways  = "always"
)

// Reasons for which an event starts no turn.
const (
	IgnoredOwn          = "own message"
	IgnoredBot          = "message of another bot"
	IgnoredForward      = "post of the linked channel"
	IgnoredNotAddressed = "group message that does not address the bot"
	IgnoredOtherCommand = "command for another bot"
	IgnoredEmpty        = "nothing to answer"
	IgnoredEdit         = "edit"
	IgnoredMembership   = "change of membership"
	IgnoredChannelPost  = "channel post"
	IgnoredInline       = "button of an inline message"
	IgnoredUnknown      = "kind of update that is not read"
)

// Chat types, in Source.ChatType and in Address.Extra under extraChatType.
const (
	chatDM      = "dm"
	chatGroup   = "group"
	chatChannel = "channel"

	extraChatType = "chat_type"
)

// CommandStop ends the run of a session; pressing stop on a draft means the same.
const CommandStop = "stop"

var (
	errNoChat   = errors.New("it has no chat")
	errNoSender = errors.New("it has no sender")
	errNoID     = errors.New("it has no message id")
)

// Parse reads one update. Every update gives one event; what starts no turn says why in Ignore. Errors are those of
// updates that are broken: they stay so, however often they are read.
//
// In an album only one item may address the bot: whoever joins the items decides by all of them, so an item can be
// ignored with [IgnoredNotAddressed] and still belong to a message.
func Parse(raw []byte, bot Bot) ([]channel.Incoming, error) {
	u, err := decode(raw)
	if err != nil {
		return nil, err
	}
	in, err := u.read(bot)
	if err != nil {
		return nil, fmt.Errorf("read update %d: %w", *u.ID, err)
	}
	in.EventID = number(*u.ID)
	in.Source.Platform, in.Source.Account = Platform, bot.ID
	if in.ReplyTo.ChatID != "" {
		in.ReplyTo.Platform, in.ReplyTo.Account = Platform, bot.ID
	}
	return []channel.Incoming{in}, nil
}

func (u *update) read(bot Bot) (channel.Incoming, error) {
	switch {
	case u.Message != nil:
		return u.Message.read(bot)
	case u.EditedMessage != nil:
		return u.EditedMessage.readEdit(bot, *u.ID)
	case u.CallbackQuery != nil:
		return u.CallbackQuery.read(bot)
	case u.Stopped != nil:
		return u.Stopped.read(*u.ID)
	case u.MyChatMember != nil:
		return ignored(event.KindSystem, u.MyChatMember.Chat, IgnoredMembership), nil
	case u.ChannelPost != nil:
		return ignored(event.KindMessage, u.ChannelPost.Chat, IgnoredChannelPost), nil
	case u.EditedChannelPost != nil:
		return ignored(event.KindEdit, u.EditedChannelPost.Chat, IgnoredChannelPost), nil
	default:
		return ignored(event.KindSystem, nil, IgnoredUnknown), nil
	}
}

func ignored(kind event.Kind, in *chat, why string) channel.Incoming {
	i := channel.Incoming{Kind: kind, Ignore: why}
	if in != nil {
		i.Source = in.source()
	}
	return i
}

func (m *message) read(bot Bot) (channel.Incoming, error) {
	if err := m.check(); err != nil {
		return channel.Incoming{}, err
	}
	in := channel.Incoming{Kind: event.KindMessage, MessageID: number(m.ID), Source: m.source(), SentAt: at(m.Date)}
	if moved := m.moved(); moved != nil {
		in.Kind, in.Moved = event.KindSystem, moved
		return in, nil
	}
	if m.From == nil && m.As == nil {
		return channel.Incoming{}, errNoSender
	}
	w := m.words(bot)
	in.ReplyTo = m.address()
	in.Text, in.Attachments, in.Quote, in.Album = w.text, m.attachments(), m.quote(bot), m.Album
	if in.Album != "" && len(in.Attachments) > 0 {
		in.Attachments[0].Caption = w.text
	}
	if w.command != nil {
		in.Kind, in.Command = event.KindCommand, w.command
	}
	in.MentionsBot = w.mentioned || m.inGroup() && (w.command != nil || in.Quote != nil && in.Quote.Own)
	in.Ignore = m.ignore(bot, w, in)
	return in, nil
}

func (m *message) check() error {
	switch {
	case m.Chat == nil || m.Chat.Number == 0:
		return errNoChat
	case m.ID == 0:
		return errNoID
	default:
		return nil
	}
}

// ignore says why m starts no turn.
func (m *message) ignore(bot Bot, w words, in channel.Incoming) string {
	switch {
	case m.From != nil && m.From.id() == bot.ID:
		return IgnoredOwn
	case m.Forwarded:
		return IgnoredForward
	case in.Source.Bot:
		return IgnoredBot
	case m.Chat.kind() == chatChannel:
		return IgnoredChannelPost
	case w.forOther:
		return IgnoredOtherCommand
	case in.Command == nil && in.Text == "" && len(in.Attachments) == 0:
		return IgnoredEmpty
	case m.inGroup() && !in.MentionsBot && bot.Groups != GroupsAlways:
		return IgnoredNotAddressed
	default:
		return ""
	}
}

// readEdit: an edit starts no turn, it only changes a message that still waits. It is never a command.
func (m *message) readEdit(bot Bot, updateID int64) (channel.Incoming, error) {
	in, err := m.read(bot)
	if err != nil {
		return in, err
	}
	in.Kind, in.Command, in.Ignore = event.KindEdit, nil, IgnoredEdit
	in.SentAt = at(m.EditDate)
	// Seconds are too coarse to tell edits apart, and update ids begin anew after a week of silence.
	in.EditVersion = fmt.Sprintf("%010d.%010d", m.EditDate, updateID)
	return in, nil
}

// moved: both chats say it, the old one that it goes and the new one where it came from.
func (m *message) moved() *channel.Move {
	switch {
	case m.MigrateTo != 0:
		return &channel.Move{From: m.Chat.id(), To: number(m.MigrateTo)}
	case m.MigrateFrom != 0:
		return &channel.Move{From: number(m.MigrateFrom), To: m.Chat.id()}
	default:
		return nil
	}
}

func (q *callbackQuery) read(bot Bot) (channel.Incoming, error) {
	if q.From == nil {
		return channel.Incoming{}, errNoSender
	}
	if q.Message == nil {
		return ignored(event.KindAction, nil, IgnoredInline), nil
	}
	if err := q.Message.check(); err != nil {
		return channel.Incoming{}, err
	}
	m := *q.Message
	m.From, m.As = q.From, nil // the message is the bot's, the press is the person's
	in := channel.Incoming{
		Kind: event.KindAction, MessageID: number(m.ID), Source: m.source(), ReplyTo: m.address(), MentionsBot: true,
		Press: &channel.Press{ID: q.ID, Data: clean(q.Data)},
	}
	if in.Source.Bot {
		in.Ignore = IgnoredBot
	}
	if q.From.id() == bot.ID {
		in.Ignore = IgnoredOwn
	}
	return in, nil
}

func (s *stopped) read(updateID int64) (channel.Incoming, error) {
	if s.Chat == nil || s.Chat.Number == 0 {
		return channel.Incoming{}, errNoChat
	}
	// Drafts stand in private chats only: the chat has the id of the person.
	m := message{Chat: s.Chat, ThreadID: s.ThreadID, IsTopic: s.ThreadID != 0, From: &user{Number: s.Chat.Number}}
	return channel.Incoming{
		Kind: event.KindCommand, MessageID: "stopped:" + number(updateID), Source: m.source(), ReplyTo: m.address(),
		Command: &event.Command{Name: CommandStop}, MentionsBot: true,
	}, nil
}

// thread is the topic that m stands in. Outside of forums Telegram also numbers chains of replies.
func (m *message) thread() string {
	if !m.IsTopic {
		return ""
	}
	return number(m.ThreadID)
}

func (m *message) inGroup() bool { return m.Chat.kind() == chatGroup }

func (m *message) source() session.Source {
	src := m.Chat.source()
	src.ThreadID = m.thread()
	switch {
	case m.As != nil && !m.Forwarded: // an anonymous admin, or a person who writes as a channel: From is a stand-in bot
		src.UserID, src.UserName = m.As.id(), clean(m.As.Title)
	case m.From != nil:
		src.UserID, src.UserName, src.Bot = m.From.id(), m.From.name(), m.From.IsBot
	}
	return src
}

func (m *message) address() event.Address {
	return event.Address{
		ChatID: m.Chat.id(), ThreadID: m.thread(), MessageID: number(m.ID),
		Extra: map[string]string{extraChatType: m.Chat.kind()},
	}
}

func (c *chat) source() session.Source {
	return session.Source{ChatID: c.id(), ChatType: c.kind(), ChatName: clean(c.Title)}
}

func (c *chat) kind() string {
	switch c.Type {
	case "private":
		return chatDM
	case "channel":
		return chatChannel
	default:
		return chatGroup
	}
}

func (u *user) name() string {
	if name := strings.TrimSpace(clean(u.FirstName + " " + u.LastName)); name != "" {
		return name
	}
	return clean(u.Username)
}

// quote is the message that m answers. In a topic every message answers the one that opened the topic, which nobody
// chose.
func (m *message) quote(bot Bot) *event.Quote {
	r := m.ReplyTo
	if r == nil || m.IsTopic && r.ID == m.ThreadID {
		return nil
	}
	q := &event.Quote{MessageID: number(r.ID), Text: clean(r.Text + r.Caption)}
	if m.Quoted != nil && m.Quoted.Text != "" {
		q.Text = clean(m.Quoted.Text)
	}
	if r.From != nil {
		q.AuthorID, q.Own = r.From.id(), r.From.id() == bot.ID
	}
	return q
}

// clean drops NUL, which no database column takes.
func clean(text string) string { return strings.ReplaceAll(text, "\x00", "") }

func at(unix int64) time.Time {
	if unix <= 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0).UTC()
}
