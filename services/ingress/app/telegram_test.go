package app_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	fake "github.com/hermes-runtime/hermes/pkg/testkit/fakeplatform/telegram"
	"github.com/hermes-runtime/hermes/services/ingress/app"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

func TestTelegram_AcceptsWhatAPersonWrites(t *testing.T) {
	t.Parallel()
	eachWay(t, nil, func(d *telegramDoor) {
		t := d.t
		id := d.server.Say(anna, anna, "hello")
		m := d.messages(1)[0]
		require.Equal(t, "hello", m.Text)
		require.Equal(t, event.KindMessage, m.Kind)
		require.Equal(t, "1", m.PlatformMessageID)
		require.Equal(t, int64(1), id)
		require.Equal(t, "agent:main:telegram:dm:111", m.SessionKey)
		require.Equal(t, "telegram", m.Source.Platform)
		require.Equal(t, "999000111", m.Source.Account)
		require.Equal(t, event.Address{
			Platform: "telegram", Account: "999000111", ChatID: "111", MessageID: "1", Extra: map[string]string{"chat_type": "dm"},
		}, m.ReplyTo)
		require.Equal(t, "default", m.Tenant)
		require.Equal(t, "default", m.RunClass)
		require.False(t, m.ReceivedAt.IsZero())
		require.False(t, m.SentAt.IsZero())
	})
}

func TestING05_EditsAreRecordedAndStartNoRun(t *testing.T) {
	t.Parallel()
	eachWay(t, nil, func(d *telegramDoor) {
		t := d.t
		d.pushCase("ING-05", 0)
		d.settled()
		d.pushCase("ING-05", 1, 2)
		all := d.messages(3)
		first, edits := all[0], all[1:]
		require.Equal(t, event.KindMessage, first.Kind)
		require.Equal(t, "book a table for 2", first.Text)
		slices.SortFunc(edits, func(a, b *event.Message) int { return a.SentAt.Compare(b.SentAt) })
		for _, edit := range edits {
			require.Equal(t, event.KindEdit, edit.Kind)
			require.Equal(t, "book a table for 4", edit.Text)
			require.Equal(t, "10", edit.PlatformMessageID)
			require.Equal(t, first.SKey, edit.SKey)
			require.Equal(t, first.UID, event.UID(edit.Tenant, edit.Source, edit.PlatformMessageID, event.KindMessage, ""),
				"admission finds the message by this")
		}
		require.Less(t, edits[0].EditVersion, edits[1].EditVersion)
		require.NotEqual(t, edits[0].UID, edits[1].UID)
	})
}

func TestING06_AnAlbumIsOneMessage(t *testing.T) {
	t.Parallel()
	eachWay(t, func(w *way) { w.pushCase("ING-06") }, func(d *telegramDoor) {
		t := d.t
		m := d.messages(1)[0]
		require.Equal(t, "before\n\nafter - compare them", m.Text)
		require.Equal(t, "20", m.PlatformMessageID)
		require.Equal(t, "g1", m.Group)
		require.Len(t, m.Attachments, 3)
		var refs, captions, items []string
		for _, a := range m.Attachments {
			refs, captions, items = append(refs, a.Ref), append(captions, a.Caption), append(items, a.ItemUID)
		}
		require.Equal(t, []string{"p1L", "p2L", "p3L"}, refs)
		require.Equal(t, []string{"before", "", "after - compare them"}, captions)
		for i, id := range []string{"20", "21", "22"} {
			require.Equal(t, event.UID(m.Tenant, m.Source, id, event.KindMessage, ""), items[i])
		}
		require.ElementsMatch(t, items, m.ItemUIDs)

		d.server.Send(anna, anna, map[string]any{
			"message_id": 30, "caption": "only a caption", "photo": []map[string]any{{"file_id": "s", "width": 1, "height": 1}},
		})
		require.Equal(t, "only a caption", d.messages(2)[1].Text)
	})
}

// photos are items of one album; the tenth makes it full, so that it waits for no more.
func (d *telegramDoor) photos(from, to int) {
	for id := from; id <= to; id++ {
		d.server.Send(anna, anna, map[string]any{
			"message_id": int64(id), "media_group_id": "g2", "caption": "look",
			"photo": []map[string]any{{"file_id": fmt.Sprint("p", id), "width": 1, "height": 1}},
		})
	}
}

func TestAlbum_RepeatedAndLateItemsKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	eachWay(t, func(w *way) { w.photos(41, 50) }, func(d *telegramDoor) {
		t := d.t
		first := d.messages(1)[0]
		require.Len(t, first.ItemUIDs, 10)
		require.Equal(t, "look", first.Text, "equal captions are one")
		d.photos(41, 50)
		require.Equal(t, first.UID, d.messages(1)[0].UID, "the same items again are the same message")
		d.photos(50, 51)
		late := d.messages(2)[1]
		require.Equal(t, first.Group, late.Group)
		require.Equal(t, "50", late.PlatformMessageID)
		require.Len(t, late.ItemUIDs, 2)
		require.Contains(t, first.ItemUIDs, event.UID(late.Tenant, late.Source, "50", event.KindMessage, ""))
		require.Contains(t, late.ItemUIDs, event.UID(late.Tenant, late.Source, "50", event.KindMessage, ""), "admission drops what it knows")
		require.Contains(t, late.ItemUIDs, event.UID(late.Tenant, late.Source, "51", event.KindMessage, ""))
	})
}

func TestING07_OnlyTopicsAreThreads(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	d.poll()
	d.pushCase("ING-07")
	byID := map[string]*event.Message{}
	for _, m := range d.messages(5) {
		byID[m.PlatformMessageID] = m
	}
	plain, reply, topic, offReply, offPlain := byID["60"], byID["61"], byID["62"], byID["63"], byID["64"]
	require.Equal(t, plain.SessionKey, reply.SessionKey)
	require.NotEqual(t, plain.SessionKey, topic.SessionKey)
	require.Contains(t, topic.SessionKey, ":42")
	require.Equal(t, offPlain.SessionKey, offReply.SessionKey)
	require.Empty(t, reply.ReplyTo.ThreadID)
	require.Empty(t, offReply.ReplyTo.ThreadID)
	require.Equal(t, "42", topic.ReplyTo.ThreadID)
}

func TestING08_AMovedGroupKeepsItsSession(t *testing.T) {
	t.Parallel()
	for name, order := range map[string][]int{
		"as it comes":       {1, 2},
		"swapped":           {2, 1},
		"only the old chat": {1},
		"only the new chat": {2},
		"each twice":        {1, 2, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newTelegram(t)
			d.poll()
			d.pushCase("ING-08", 0)
			d.settled()
			d.pushCase("ING-08", order...)
			d.settled()
			d.pushCase("ING-08", 3)
			all := d.messages(2)
			require.Equal(t, all[0].SKey, all[1].SKey)
			require.Equal(t, "-4518000001", all[0].ReplyTo.ChatID)
			require.Equal(t, "-1002470000001", all[1].ReplyTo.ChatID, "answers go to the newest id")
			require.Equal(t, "-1002470000001", all[1].Source.ChatID)
		})
	}
}

func TestING09_CommandsAreForTheBotThatTheyName(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	tg := d.settings()
	tg.Groups = "always" // so that ordinary text is seen as such
	d.start(tg, d.Backends(), quick())
	d.pushCase("ING-09")
	all := d.messages(4)
	require.Equal(t, event.KindCommand, all[0].Kind)
	require.Equal(t, &event.Command{Name: "stop"}, all[0].Command)
	require.Equal(t, event.KindCommand, all[1].Kind)
	require.Equal(t, &event.Command{Name: "stop", Args: "please"}, all[1].Command)
	require.Equal(t, "/stop please", all[1].Text)
	require.Equal(t, "73", all[2].PlatformMessageID, "the third one is for another bot")
	require.Equal(t, "stopwatch", all[2].Command.Name)
	require.Equal(t, event.KindMessage, all[3].Kind)
	require.Nil(t, all[3].Command)
	require.Equal(t, "please don't /stop", all[3].Text)
}

func TestTelegram_ACommandHasTheIdentityOfItsMessage(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	d.poll()
	d.server.Say(anna, anna, "/new")
	m := d.messages(1)[0]
	require.Equal(t, event.KindCommand, m.Kind)
	require.Equal(t, event.UID(m.Tenant, m.Source, "1", event.KindMessage, ""), m.UID)
}

func TestTelegram_PressesAreAcceptedOneByOneAndAnswered(t *testing.T) {
	t.Parallel()
	eachWay(t, nil, func(d *telegramDoor) {
		t := d.t
		d.server.Say(anna, anna, "ask me")
		first, second := d.server.Press(anna, anna, 1, "yes"), d.server.Press(anna, anna, 1, "yes")
		all := d.messages(3)
		all = slices.DeleteFunc(all, func(m *event.Message) bool { return m.Kind != event.KindAction })
		require.Len(t, all, 2)
		require.ElementsMatch(t, []string{first, second}, []string{all[0].PlatformMessageID, all[1].PlatformMessageID})
		require.Equal(t, "yes", all[0].Text)
		require.Equal(t, "1", all[0].ReplyTo.MessageID)
		for _, id := range []string{first, second} {
			require.Eventually(t, func() bool { _, answered := d.server.Pressed(id); return answered }, patience, 5*time.Millisecond)
		}
	})
}

func TestTelegram_WhatIsIgnoredIsToldAndLeavesItsIdentityFree(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	events, err := d.Bus.Work(t.Context(), bus.EventQueue("test", string(event.MessageIgnored)))
	require.NoError(t, err)
	d.poll()
	d.server.Say(-5, anna, "lunch anyone?")
	d.settled()
	d.server.Block(anna)
	d.messages(0)
	var told []*event.Lifecycle
	require.Eventually(t, func() bool {
		batch, err := events.Fetch(t.Context(), 10, 100*time.Millisecond)
		require.NoError(t, err)
		for _, w := range batch {
			ev, err := event.DecodeLifecycle(w.Msg().Data)
			require.NoError(t, err)
			require.NoError(t, w.Ack())
			told = append(told, ev)
		}
		return len(told) == 2
	}, patience, 5*time.Millisecond)
	require.Equal(t, "group message that does not address the bot", told[0].Outcome)
	require.Equal(t, "-5", told[0].Address.ChatID)

	d.server.Push(map[string]any{"message": map[string]any{
		"message_id": 1, "chat": map[string]any{"id": -5, "type": "group"}, "from": map[string]any{"id": anna}, "text": "@agent_bot lunch?",
		"entities": []map[string]any{{"type": "mention", "offset": 0, "length": 10}},
	}})
	require.Equal(t, told[0].MsgUID, d.messages(1)[0].UID)
}

func TestAllowList_StrangersAreAnsweredOnceADay(t *testing.T) {
	t.Parallel()
	onlyAnna := func(w *way) { w.telegram.AllowUsers = []string{"111"} }
	eachWay(t, onlyAnna, func(d *telegramDoor) {
		t := d.t
		const stranger, group = 222, -7
		d.server.Say(stranger, stranger, "let me in")
		d.settled()
		d.server.Say(stranger, stranger, "/stop")
		d.server.Say(stranger, stranger, "hello?")
		d.server.Edit(stranger, stranger, 1, "let me in, please")
		d.server.Say(group, stranger, "not to the bot")
		refused := d.messages(1)[0]
		require.Equal(t, event.RefusedStranger, refused.Refusal)
		require.Equal(t, event.KindMessage, refused.Kind)
		require.Empty(t, refused.Text, "what a stranger writes is not kept")
		require.Equal(t, "222", refused.ReplyTo.ChatID)
		require.Equal(t, "stranger:222:"+refused.ReceivedAt.Format(time.DateOnly), refused.PlatformMessageID)

		d.server.Topic(group, 3)
		for _, thread := range []int{3, 0} {
			d.server.Send(group, stranger, map[string]any{"text": "@agent_bot hi", "message_thread_id": thread, "is_topic_message": thread != 0})
			d.settled()
		}
		refused = d.messages(2)[1]
		require.Equal(t, "-7", refused.ReplyTo.ChatID)
		require.Equal(t, "3", refused.ReplyTo.ThreadID)
		require.Equal(t, "agent:main:telegram:group:-7:222", refused.SessionKey, "once in each chat, whatever the topic")
	})
}

func TestAllowList_AListedUserOrChatIsEnough(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	tg := d.settings()
	tg.AllowUsers, tg.AllowChats = []string{"111"}, []string{"-8", "-1009"}
	d.start(tg, d.Backends(), quick())
	d.server.Say(-8, 222, "@agent_bot a stranger in a listed group")
	d.server.Say(-9, anna, "@agent_bot a listed user in another group")
	d.server.Say(anna, anna, "a listed user alone")
	for _, m := range d.messages(3) {
		require.Empty(t, m.Refusal, m.Text)
	}
	d.server.Push(map[string]any{"message": map[string]any{
		"message_id": 5, "chat": map[string]any{"id": -8, "type": "group"}, "from": map[string]any{"id": 222}, "migrate_to_chat_id": -1008,
	}})
	d.settled()
	d.server.Say(-1008, 222, "@agent_bot the listed group has moved")
	require.Empty(t, d.messages(4)[3].Refusal)
}

func TestAllowList_EmptyIsNobody(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	tg := d.settings()
	tg.AllowUsers, tg.AllowChats = nil, []string{"*"}
	d.start(tg, d.Backends(), quick())
	d.server.Say(anna, anna, "hello")
	require.Equal(t, event.RefusedStranger, d.messages(1)[0].Refusal, "every chat means every group")
	d.server.Say(-8, 222, "@agent_bot hello")
	require.Empty(t, d.messages(2)[1].Refusal)
}

// latelyAliases are aliases that can be stored from some time on.
type latelyAliases struct {
	store.Aliases
	up    atomic.Bool
	tried atomic.Int64
}

func (l *latelyAliases) ResolveAliases(ctx context.Context, as []store.Address) ([]string, error) {
	if !l.up.Load() {
		return nil, store.ErrUnavailable
	}
	return l.Aliases.ResolveAliases(ctx, as)
}

func (l *latelyAliases) LearnAlias(ctx context.Context, a store.Address, older string) (string, error) {
	l.tried.Add(1)
	if !l.up.Load() {
		return "", store.ErrUnavailable
	}
	return l.Aliases.LearnAlias(ctx, a, older)
}

func TestTelegram_WithoutTheStoreMessagesAreAcceptedAndMovesWait(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{config.TelegramPoll, config.TelegramWebhook} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			d := newTelegram(t)
			aliases, b := &latelyAliases{Aliases: d.Store}, d.Backends()
			b.Store, b.Aliases = nil, aliases
			if mode == config.TelegramPoll {
				d.start(d.settings(), b, quick())
			} else {
				d.register(d.webhook(d.settings(), b))
			}
			d.pushCase("ING-08", 1)
			require.Eventually(t, func() bool { return aliases.tried.Load() >= 2 }, patience, 5*time.Millisecond, "it comes again")
			d.server.Say(anna, anna, "meanwhile")
			require.Eventually(t, func() bool { return d.Stored(t) == 1 }, patience, 5*time.Millisecond)
			require.GreaterOrEqual(t, d.server.Pending(), 1, "the move is not confirmed")

			aliases.up.Store(true)
			d.messages(1)
			ids, err := d.Store.ResolveAliases(t.Context(), []store.Address{
				{Tenant: "default", Platform: "telegram", Account: "999000111", ID: "-1002470000001"},
			})
			require.NoError(t, err)
			require.Equal(t, []string{"-4518000001"}, ids)
		})
	}
}

func TestTelegram_WaitsUntilTheBotIsKnown(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	open := make(chan struct{})
	d.server.Script("getMe", fake.Answer{Code: 401, Description: "Unauthorized"}, fake.Answer{Until: open})
	d.poll()
	d.server.Say(anna, anna, "hello")
	require.Eventually(t, func() bool { return len(d.server.Requests("getMe")) == 2 }, patience, 5*time.Millisecond)
	require.Empty(t, d.server.Requests("getUpdates"))
	close(open)
	d.messages(1)
}

func TestNew_RefusesOneBotInTwoChannels(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	cfg := d.config(d.settings())
	cfg.Channels["other"] = cfg.Channels["bot"]
	_, err := app.New(cfg, d.Backends())
	require.EqualError(t, err, `channels.other.telegram.token: belongs to the bot of channel "bot"`)

	bad := d.settings()
	bad.Token = secretFile(t, "no token")
	_, err = app.New(d.config(bad), d.Backends())
	require.ErrorContains(t, err, "channels.bot.telegram: ")
	require.NotContains(t, err.Error(), "no token")

	_, err = app.New(d.config(d.settings()), backends.Backends{})
	require.EqualError(t, err, "ingress: no store for aliases")
}

func TestTelegram_APollChannelReceivesNoPosts(t *testing.T) {
	t.Parallel()
	d := newTelegram(t)
	a := d.poll()
	require.Equal(t, http.StatusNotFound, post(t, "http://"+a.Addr()+"/v1/telegram/bot", webhookToken, "{}"))
}
