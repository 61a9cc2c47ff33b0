package telegram_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/channel/telegram"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// expected is testdata/expected.json.
type expected struct {
	Context struct {
		Telegram struct {
			BotID       string `json:"bot_id"`
			BotUsername string `json:"bot_username"`
		}
	}
	Cases []struct {
		File   string
		Events []expectedEvent
	}
}

type expectedEvent struct {
	Platform    string
	Kind        string
	EventID     string `json:"event_id"`
	MessageID   string `json:"message_id"`
	ScopeID     string `json:"scope_id"`
	ChatType    string `json:"chat_type"`
	ChatID      string `json:"chat_id"`
	ThreadID    string `json:"thread_id"`
	UserID      string `json:"user_id"`
	Text        string
	Attachments []struct{ Kind, Ref string }
	IsCommand   bool   `json:"is_command"`
	Command     string `json:"command"`
	MentionsBot bool   `json:"mentions_bot"`
	ReplyTo     string `json:"reply_to"`
	Ignore      bool
	Why         string
	Album       string `json:"media_group_id"`
	Action      *struct{ ID, Data string }
}

// as writes an event in the form of expected.json.
func as(in channel.Incoming) expectedEvent {
	e := expectedEvent{
		Platform: in.Source.Platform, Kind: string(in.Kind), EventID: in.EventID, MessageID: in.MessageID,
		ScopeID: in.Source.Account, ChatType: in.Source.ChatType, ChatID: in.Source.ChatID, ThreadID: in.Source.ThreadID,
		UserID: in.Source.UserID, Text: in.Text, Attachments: []struct{ Kind, Ref string }{}, IsCommand: in.Command != nil,
		MentionsBot: in.MentionsBot, Ignore: in.Ignore != "", Album: in.Album,
	}
	switch in.Kind {
	case event.KindCommand:
		e.Kind, e.Command = "message", in.Command.Name
	case event.KindEdit:
		e.Kind = "message_edited"
	default: // the same word
	}
	for _, a := range in.Attachments {
		e.Attachments = append(e.Attachments, struct{ Kind, Ref string }{a.Kind, a.Ref})
	}
	if in.Quote != nil {
		e.ReplyTo = in.Quote.MessageID
	}
	if in.Press != nil {
		e.Action = &struct{ ID, Data string }{in.Press.ID, in.Press.Data}
	}
	return e
}

func TestParse_GivesWhatThePayloadsMean(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/expected.json")
	require.NoError(t, err)
	var want expected
	require.NoError(t, json.Unmarshal(raw, &want))
	require.Len(t, want.Cases, 8)
	bot := telegram.Bot{ID: want.Context.Telegram.BotID, Username: want.Context.Telegram.BotUsername}
	for _, c := range want.Cases {
		t.Run(c.File, func(t *testing.T) {
			t.Parallel()
			update, err := os.ReadFile(filepath.Join("testdata", filepath.Base(c.File)))
			require.NoError(t, err)
			events, err := telegram.Parse(update, bot)
			require.NoError(t, err)
			require.Len(t, events, len(c.Events))
			for i, e := range c.Events {
				require.Equal(t, e.Ignore, e.Why != "")
				e.Why = "" // the wording is ours
				require.Equal(t, e, as(events[i]))
				in := events[i]
				require.NoError(t, in.Source.Validate())
				require.Equal(t, event.Address{
					Platform: "telegram", Account: e.ScopeID, ChatID: e.ChatID, ThreadID: e.ThreadID, MessageID: e.MessageID,
					Extra: map[string]string{"chat_type": e.ChatType},
				}, in.ReplyTo)
				id, err := telegram.UpdateID(update)
				require.NoError(t, err)
				require.Equal(t, e.EventID, fmt.Sprint(id))
			}
		})
	}
}

func bot() telegram.Bot { return telegram.Bot{ID: "999", Username: "agent_bot"} }

// parse reads the only event of an update.
func parse(t *testing.T, update string) channel.Incoming {
	t.Helper()
	return parseFor(t, bot(), update)
}

func parseFor(t *testing.T, b telegram.Bot, update string) channel.Incoming {
	t.Helper()
	events, err := telegram.Parse([]byte(update), b)
	require.NoError(t, err)
	require.Len(t, events, 1)
	return events[0]
}

const (
	anna    = `"from":{"id":111,"is_bot":false,"first_name":"Anna"}`
	private = `"chat":{"id":111,"type":"private"}`
	group   = `"chat":{"id":-500,"type":"group","title":"G"}`
)

// message is an update with a message of these fields.
func message(fields ...string) string {
	return `{"update_id":7,"message":{"message_id":10,"date":1767225600,` + strings.Join(fields, ",") + `}}`
}

func TestING05_AnEditIsRecordedAndStartsNothing(t *testing.T) {
	t.Parallel()
	first := parse(t, message(private, anna, `"text":"book a table for 2"`))
	require.Equal(t, event.KindMessage, first.Kind)
	require.Empty(t, first.Ignore)
	edit := func(id int, at int64, more string) channel.Incoming {
		return parse(t, fmt.Sprintf(`{"update_id":%d,"edited_message":{"message_id":10,"date":1767225600,"edit_date":%d,%s,%s,`+
			`"text":"book a table for 4"%s}}`, id, at, private, anna, more))
	}
	a, b := edit(5002, 1767225610, ""), edit(5003, 1767225620, `,"reply_markup":{"inline_keyboard":[]}`)
	same := edit(5004, 1767225620, "")
	for _, e := range []channel.Incoming{a, b, same} {
		require.Equal(t, event.KindEdit, e.Kind)
		require.Equal(t, telegram.IgnoredEdit, e.Ignore)
		require.Equal(t, "10", e.MessageID)
		require.Equal(t, "book a table for 4", e.Text)
		require.Equal(t, first.Source, e.Source)
	}
	require.Equal(t, time.Unix(1767225610, 0).UTC(), a.SentAt)
	require.Less(t, a.EditVersion, b.EditVersion)
	require.Less(t, b.EditVersion, same.EditVersion, "edits within a second are told apart")
	require.Equal(t, a.EditVersion, edit(5002, 1767225610, "").EditVersion, "the same update has the same version")

	command := parse(t, `{"update_id":1,"edited_message":{"message_id":10,"edit_date":1,`+private+`,`+anna+`,"text":"/stop now",`+
		`"entities":[{"type":"bot_command","offset":0,"length":5}]}}`)
	require.Equal(t, event.KindEdit, command.Kind)
	require.Nil(t, command.Command, "an edit is no command")
}

func TestING06_ItemsOfAnAlbumCarryTheirCaptions(t *testing.T) {
	t.Parallel()
	item := func(id int, photo, caption string) channel.Incoming {
		return parse(t, fmt.Sprintf(`{"update_id":%d,"message":{"message_id":%d,"media_group_id":"g1",%s,%s,"photo":%s%s}}`,
			5081+id, id, private, anna, photo, caption))
	}
	items := []channel.Incoming{
		item(20, `[{"file_id":"p1L","width":1280,"height":960},{"file_id":"p1","width":90,"height":90}]`, `,"caption":"before"`),
		item(22, `[{"file_id":"p3L","width":1280,"height":960}]`, `,"caption":"after - compare them"`),
		item(21, `[{"file_id":"p2L","width":1280,"height":960}]`, ""),
	}
	for i, want := range []struct{ id, ref, caption string }{
		{"20", "p1L", "before"}, {"22", "p3L", "after - compare them"}, {"21", "p2L", ""},
	} {
		in := items[i]
		require.Equal(t, "g1", in.Album)
		require.Equal(t, want.id, in.MessageID)
		require.Equal(t, want.caption, in.Text)
		require.Equal(t, []event.Attachment{{Kind: "image", Ref: want.ref, MIME: "image/jpeg", Caption: want.caption}}, in.Attachments)
		require.Empty(t, in.Ignore)
	}
	single := parse(t, message(private, anna, `"photo":[{"file_id":"p","width":1,"height":1}],"caption":"what is it?"`))
	require.Equal(t, "what is it?", single.Text)
	require.Empty(t, single.Album)
	require.Empty(t, single.Attachments[0].Caption)
}

func TestING07_OnlyTopicsAreThreads(t *testing.T) {
	t.Parallel()
	forum := `"chat":{"id":-100700,"type":"supergroup","is_forum":true}`
	off := `"chat":{"id":-100701,"type":"supergroup"}`
	reply := `"message_thread_id":57,"reply_to_message":{"message_id":57}`
	hi := `"text":"@agent_bot hi"`
	generalPlain, generalReply := parse(t, message(forum, anna, hi)), parse(t, message(forum, anna, reply, hi))
	topic := parse(t, message(forum, anna, `"message_thread_id":42,"is_topic_message":true`, hi))
	offReply, offPlain := parse(t, message(off, anna, reply, hi)), parse(t, message(off, anna, hi))

	key := func(in channel.Incoming) string { return session.Key(in.Source, session.DefaultOptions()) }
	require.Equal(t, key(generalPlain), key(generalReply))
	require.NotEqual(t, key(generalPlain), key(topic))
	require.Contains(t, key(topic), ":42")
	require.Equal(t, key(offReply), key(offPlain))
	require.Empty(t, generalReply.ReplyTo.ThreadID)
	require.Empty(t, offReply.ReplyTo.ThreadID)
	require.Equal(t, "42", topic.ReplyTo.ThreadID)
	require.Equal(t, "57", generalReply.Quote.MessageID)
	for _, in := range []channel.Incoming{generalPlain, generalReply, topic, offReply, offPlain} {
		require.Empty(t, in.Ignore)
		require.Equal(t, "hi", in.Text)
	}
}

func TestING08_AGroupThatBecomesASupergroupSaysBothIDs(t *testing.T) {
	t.Parallel()
	old := `"chat":{"id":-4518000001,"type":"group"}`
	supergroup := `"chat":{"id":-1002470000001,"type":"supergroup"}`
	want := &channel.Move{From: "-4518000001", To: "-1002470000001"}
	for _, update := range []string{
		message(old, anna, `"migrate_to_chat_id":-1002470000001`),
		message(supergroup, anna, `"migrate_from_chat_id":-4518000001`),
	} {
		in := parse(t, update)
		require.Equal(t, want, in.Moved)
		require.Equal(t, event.KindSystem, in.Kind)
		require.Empty(t, in.Text)
	}
	before := parse(t, message(old, anna, `"text":"@agent_bot remember: code word is plum"`))
	after := parse(t, message(supergroup, anna, `"text":"@agent_bot what is the code word?"`))
	require.Equal(t, "remember: code word is plum", before.Text)
	require.Equal(t, "group", after.Source.ChatType)
	require.Nil(t, after.Moved)
	require.Empty(t, after.Ignore)
}

func TestING09_CommandsAreForTheBotThatTheyName(t *testing.T) {
	t.Parallel()
	command := func(text string, offset, length int) channel.Incoming {
		return parse(t, message(group, anna, fmt.Sprintf(`"text":%q,"entities":[{"type":"bot_command","offset":%d,"length":%d}]`,
			text, offset, length)))
	}
	for _, c := range []struct {
		in     channel.Incoming
		kind   event.Kind
		want   *event.Command
		ignore string
	}{
		{command("/stop@agent_bot", 0, 15), event.KindCommand, &event.Command{Name: "stop"}, ""},
		{command("/stop@Agent_Bot please", 0, 15), event.KindCommand, &event.Command{Name: "stop", Args: "please"}, ""},
		{command("/stop@other_bot", 0, 15), event.KindMessage, nil, telegram.IgnoredOtherCommand},
		{command("/stopwatch@agent_bot", 0, 20), event.KindCommand, &event.Command{Name: "stopwatch"}, ""},
		{command("please don't /stop", 13, 5), event.KindMessage, nil, telegram.IgnoredNotAddressed},
		{command("/STOP", 0, 5), event.KindCommand, &event.Command{Name: "stop"}, ""},
		{command("/usr/bin is full", 0, 4), event.KindMessage, nil, telegram.IgnoredNotAddressed},
	} {
		require.Equal(t, c.kind, c.in.Kind, c.in.Text)
		require.Equal(t, c.want, c.in.Command, c.in.Text)
		require.Equal(t, c.ignore, c.in.Ignore, c.in.Text)
	}
	always := telegram.Bot{ID: "999", Username: "agent_bot", Groups: telegram.GroupsAlways}
	other := parseFor(t, always, message(group, anna, `"text":"/stop@other_bot","entities":[{"type":"bot_command","offset":0,"length":15}]`))
	require.Equal(t, telegram.IgnoredOtherCommand, other.Ignore, "not even where every message counts")
	text := parseFor(t, always, message(group, anna, `"text":"please don't /stop","entities":[{"type":"bot_command","offset":13,"length":5}]`))
	require.Equal(t, "please don't /stop", text.Text)
	require.Empty(t, text.Ignore)
	require.False(t, text.MentionsBot)
}

func TestParse_SaysWhyAnEventIsIgnored(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, update, why string }{
		{"own message", message(private, `"from":{"id":999,"is_bot":true},"text":"x"`), telegram.IgnoredOwn},
		{"other bot", message(group, `"from":{"id":5,"is_bot":true},"text":"@agent_bot x"`), telegram.IgnoredBot},
		{"join", message(group, anna, `"new_chat_members":[{"id":5}]`), telegram.IgnoredEmpty},
		{"pin in a private chat", message(private, anna, `"pinned_message":{"message_id":1}`), telegram.IgnoredEmpty},
		{"only a mention", message(group, anna, `"text":"@agent_bot"`), telegram.IgnoredEmpty},
		{"linked channel", message(group, `"from":{"id":777000},"sender_chat":{"id":-1001,"type":"channel"},"is_automatic_forward":true,"text":"@agent_bot x"`), telegram.IgnoredForward},
		{"mention of a longer name", message(group, anna, `"text":"@agent_bot2 x"`), telegram.IgnoredNotAddressed},
		{"reply to a person", message(group, anna, `"text":"x","reply_to_message":{"message_id":1,"from":{"id":5}}`), telegram.IgnoredNotAddressed},
		{"the bot opened the topic", message(`"chat":{"id":-1,"type":"supergroup"}`, anna, `"text":"x","message_thread_id":4,"is_topic_message":true,"reply_to_message":{"message_id":4,"from":{"id":999}}`), telegram.IgnoredNotAddressed},
		{"channel", message(`"chat":{"id":-1,"type":"channel"},"sender_chat":{"id":-1,"type":"channel"},"text":"x"`), telegram.IgnoredChannelPost},
		{"channel post", `{"update_id":7,"channel_post":{"message_id":1,"chat":{"id":-1,"type":"channel"},"text":"x"}}`, telegram.IgnoredChannelPost},
		{"edited channel post", `{"update_id":7,"edited_channel_post":{"message_id":1,"chat":{"id":-1,"type":"channel"}}}`, telegram.IgnoredChannelPost},
		{"membership", `{"update_id":7,"my_chat_member":{"chat":{"id":111,"type":"private"},"from":{"id":111}}}`, telegram.IgnoredMembership},
		{"reaction", `{"update_id":7,"message_reaction":{"chat":{"id":111}}}`, telegram.IgnoredUnknown},
		{"inline button", `{"update_id":7,"callback_query":{"id":"1","from":{"id":111},"inline_message_id":"x"}}`, telegram.IgnoredInline},
		{"button pressed by a bot", `{"update_id":7,"callback_query":{"id":"1","from":{"id":5,"is_bot":true},"message":{"message_id":1,"chat":{"id":-1,"type":"group"}}}}`, telegram.IgnoredBot},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := parse(t, c.update)
			require.Equal(t, c.why, in.Ignore)
			require.Equal(t, "7", in.EventID)
			require.Equal(t, "999", in.Source.Account)
		})
	}
}

func TestParse_FindsWhatAddressesTheBot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, fields, text string
		mentions           bool
	}{
		{"mention with units before it", `"text":"👩‍🚀 hey @Agent_Bot  do it","entities":[{"type":"mention","offset":10,"length":10}]`, "👩‍🚀 hey do it", true},
		{"mention at the end", `"text":"do it @agent_bot","entities":[{"type":"mention","offset":6,"length":10}]`, "do it", true},
		{"two mentions", `"text":"@agent_bot a @agent_bot b","entities":[{"type":"mention","offset":0,"length":10},{"type":"mention","offset":13,"length":10}]`, "a b", true},
		{"mention on a line of its own", `"text":"@agent_bot\ndo it","entities":[{"type":"mention","offset":0,"length":10}]`, "do it", true},
		{"mention by id", `"text":"Agent do it","entities":[{"type":"text_mention","offset":0,"length":5,"user":{"id":999}}]`, "do it", true},
		{"mention in a caption", `"photo":[{"file_id":"p"}],"caption":"@agent_bot see","caption_entities":[{"type":"mention","offset":0,"length":10}]`, "see", true},
		{"reply", `"text":"yes","reply_to_message":{"message_id":3,"from":{"id":999,"is_bot":true}}`, "yes", true},
		{"others stay", `"text":"@agent_bot ask @bob","entities":[{"type":"mention","offset":0,"length":10},{"type":"mention","offset":15,"length":4}]`, "ask @bob", true},
		{"broken entities", `"text":"😀@agent_bot","entities":[{"type":"mention","offset":1,"length":10},{"type":"mention","offset":-1,"length":3},{"type":"mention","offset":9223372036854775807,"length":9223372036854775807}]`, "😀@agent_bot", false},
		{"NUL", `"text":"a\u0000b @agent_bot"`, "ab", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := parse(t, message(group, anna, c.fields))
			require.Equal(t, c.text, in.Text)
			require.Equal(t, c.mentions, in.MentionsBot)
			require.Equal(t, c.mentions, in.Ignore == "", in.Ignore)
		})
	}
}

func TestParse_ReadsAttachments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fields string
		want   event.Attachment
	}{
		{`"voice":{"file_id":"f","mime_type":"audio/ogg","file_size":7}`, event.Attachment{Kind: "audio", Ref: "f", MIME: "audio/ogg", Size: 7}},
		{`"audio":{"file_id":"f","file_name":"a.mp3"}`, event.Attachment{Kind: "audio", Ref: "f", MIME: "audio/mpeg", Name: "a.mp3"}},
		{`"video":{"file_id":"f","mime_type":"video/mp4","file_size":5000000000}`, event.Attachment{Kind: "video", Ref: "f", MIME: "video/mp4", Size: 5_000_000_000}},
		{`"video_note":{"file_id":"f"}`, event.Attachment{Kind: "video", Ref: "f", MIME: "video/mp4"}},
		{`"animation":{"file_id":"f"},"document":{"file_id":"f"}`, event.Attachment{Kind: "video", Ref: "f", MIME: "video/mp4"}},
		{`"document":{"file_id":"f","mime_type":"application/pdf","file_name":"a\u0000.pdf"}`, event.Attachment{Kind: "file", Ref: "f", MIME: "application/pdf", Name: "a.pdf"}},
		{`"sticker":{"file_id":"f","emoji":"🔥","is_video":true}`, event.Attachment{Kind: "sticker", Ref: "f", MIME: "video/webm", Name: "🔥"}},
		{`"sticker":{"file_id":"f","is_animated":true}`, event.Attachment{Kind: "sticker", Ref: "f", MIME: "application/x-tgsticker"}},
		{`"sticker":{"file_id":"f"}`, event.Attachment{Kind: "sticker", Ref: "f", MIME: "image/webp"}},
		{`"location":{"latitude":52.5,"longitude":-13.25},"venue":{"title":"Bar"}`, event.Attachment{Kind: "location", Ref: "geo:52.5,-13.25", Name: "Bar"}},
		{`"photo":[{"file_id":"a","width":5,"height":5},{"file_id":"f","width":9,"height":9,"file_size":3},{"file_id":"c","width":1,"height":1}]`, event.Attachment{Kind: "image", Ref: "f", MIME: "image/jpeg", Size: 3}},
	} {
		in := parse(t, message(private, anna, c.fields))
		require.Equal(t, []event.Attachment{c.want}, in.Attachments)
		require.Empty(t, in.Ignore)
		require.Empty(t, in.Text)
	}
}

func TestParse_KnowsWhoSpeaks(t *testing.T) {
	t.Parallel()
	in := parse(t, message(group, `"from":{"id":111,"first_name":"Anna","last_name":"B","username":"ab"},"text":"/x"`))
	require.Equal(t, session.Source{
		Platform: "telegram", Account: "999", ChatID: "-500", ChatType: "group", ChatName: "G", UserID: "111", UserName: "Anna B",
	}, in.Source)
	require.Equal(t, time.Unix(1767225600, 0).UTC(), in.SentAt)
	in = parse(t, message(group, `"from":{"id":1087968824,"is_bot":true},"sender_chat":{"id":-500,"title":"G"},"text":"/x"`))
	require.Equal(t, "-500", in.Source.UserID, "an anonymous admin")
	require.False(t, in.Source.Bot)
	require.Empty(t, in.Ignore)
}

func TestParse_QuotesWhatIsAnswered(t *testing.T) {
	t.Parallel()
	in := parse(t, message(private, anna, `"text":"x","reply_to_message":{"message_id":3,"from":{"id":999},"caption":"all of it"},"quote":{"text":"of"}`))
	require.Equal(t, &event.Quote{MessageID: "3", Text: "of", AuthorID: "999", Own: true}, in.Quote)
	in = parse(t, message(private, anna, `"text":"x","reply_to_message":{"message_id":3,"from":{"id":5},"caption":"all of it"}`))
	require.Equal(t, &event.Quote{MessageID: "3", Text: "all of it", AuthorID: "5"}, in.Quote)
}

func TestParse_StoppingADraftIsTheCommandStop(t *testing.T) {
	t.Parallel()
	in := parse(t, `{"update_id":7,"stopped_message_generation":{"chat":{"id":111,"type":"private"},"message_thread_id":4,"draft_id":9}}`)
	require.Equal(t, channel.Incoming{
		Kind: event.KindCommand, EventID: "7", MessageID: "stopped:7", MentionsBot: true, Command: &event.Command{Name: "stop"},
		Source: session.Source{Platform: "telegram", Account: "999", ChatID: "111", ChatType: "dm", UserID: "111", ThreadID: "4"},
		ReplyTo: event.Address{
			Platform: "telegram", Account: "999", ChatID: "111", ThreadID: "4", Extra: map[string]string{"chat_type": "dm"},
		},
	}, in)
}

func TestParse_RefusesBrokenUpdates(t *testing.T) {
	t.Parallel()
	for update, want := range map[string]string{
		`{`:                            "read update: unexpected end of JSON input",
		`{}`:                           "read update: it has no update_id",
		`[1]`:                          "read update: json: cannot unmarshal array into Go value of type telegram.update",
		`{"update_id":7,"message":{}}`: "read update 7: it has no chat",
		`{"update_id":7,"message":{"chat":{"id":1}}}`: "read update 7: it has no message id",
		message(private): "read update 7: it has no sender",
		`{"update_id":7,"callback_query":{"id":"1"}}`:                        "read update 7: it has no sender",
		`{"update_id":7,"callback_query":{"id":"1","from":{},"message":{}}}`: "read update 7: it has no chat",
		`{"update_id":7,"stopped_message_generation":{}}`:                    "read update 7: it has no chat",
		`{"update_id":7,"edited_message":{"message_id":1,"chat":{"id":0}}}`:  "read update 7: it has no chat",
	} {
		_, err := telegram.Parse([]byte(update), bot())
		require.EqualError(t, err, want, update)
	}
	for _, raw := range []string{`{`, `{}`, `{"update_id":"x"}`} {
		_, err := telegram.UpdateID([]byte(raw))
		require.Error(t, err)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(f, err)
	for _, name := range files {
		raw, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Add([]byte(message(group, anna, `"text":"😀/a@b","entities":[{"type":"mention","offset":1,"length":99999999999}]`)))
	f.Add([]byte(`{"update_id":1,"stopped_message_generation":{"chat":{"id":-9223372036854775808}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		events, err := telegram.Parse(raw, bot())
		if err != nil {
			return
		}
		for _, in := range events {
			require.Equal(t, "999", in.Source.Account)
			require.NotContains(t, in.Text, "\x00")
			if in.Kind == event.KindCommand {
				require.NotEmpty(t, in.Command.Name)
			}
		}
	})
}
