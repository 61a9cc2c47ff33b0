package admission

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// edited is an edit of m.
func edited(m *event.Message, version, text string) *event.Message {
	e := *m
	e.Kind, e.EditVersion, e.Text, e.Command = event.KindEdit, version, text, nil
	e.UID = event.UID(e.Tenant, e.Source, e.PlatformMessageID, e.Kind, version)
	e.Attachments, e.ItemUIDs = nil, nil
	return &e
}

func (b *bundle) body(t *testing.T, m *event.Message) event.Message {
	t.Helper()
	var stored event.Message
	require.NoError(t, json.Unmarshal(b.admitted(t, m).Body, &stored))
	return stored
}

// requireIgnored: the newest entry got no row and started nothing, but the offset is behind it.
func (b *bundle) requireIgnored(t *testing.T, m *event.Message, why reason) {
	t.Helper()
	b.requireAbsent(t, m)
	last := b.rec.events[len(b.rec.events)-1]
	require.Equal(t, event.MessageIgnored, last.Type)
	require.Equal(t, m.UID, last.MsgUID)
	require.Equal(t, string(why), last.Outcome)
	require.Equal(t, b.seq, b.offsetOf(t, session.Partition(m.SKey)))
}

// finishOne lets the current run of a session end.
func finishOne(t *testing.T, b *bundle, claimed store.Claimed) {
	t.Helper()
	got, err := b.store.Finish(t.Context(), []store.Finish{{
		Fence: claimed.Fence, RunGen: claimed.FirstGen, From: claimed.DoneSeq + 1, To: claimed.Inbox[0].Seq, State: store.RunDone, NextRunID: newID(),
	}})
	require.NoError(t, err)
	require.Equal(t, store.Finished, got[0].Outcome)
}

func TestING05_EditOfAMessageThatWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("telegram", "111", 10)
	m.Text = "book a table for 2"
	first, same := edited(m, "1767225610", "book a table for 4"), edited(m, "1767225620", "book a table for 4")
	b.admitAll(t, m, first)
	require.Equal(t, "book a table for 4", b.body(t, m).Text)
	require.Equal(t, "1767225610", b.body(t, m).EditVersion)
	require.EqualValues(t, 1, b.session(t, m).LastSeq, "an edit has no row of its own")
	b.requireAbsent(t, first)
	require.EqualValues(t, 2, b.offsetOf(t, session.Partition(m.SKey)))

	b.admitAll(t, same)
	b.requireIgnored(t, same, ignoredUnchanged)
	require.Equal(t, "1767225610", b.body(t, m).EditVersion)
	require.Len(t, b.rec.runs, 1, "an edit starts no run")
	require.Equal(t, []event.Type{event.ProcessingStarted, event.MessageIgnored}, b.rec.types())
}

func TestING05_EditOfAMessageThatRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("telegram", "111", 10)
	b.admitAll(t, m)
	claimed := claimOne(t, b, m.SKey)
	b.admitAll(t, edited(m, "5", "other"))
	require.Equal(t, "other", b.body(t, m).Text, "for a worker that takes the run over")
	finishOne(t, b, claimed)
	require.Equal(t, store.Idle, b.session(t, m).State)
	require.Len(t, b.rec.runs, 1)
}

func TestING05_EditAfterTheRunEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := message("telegram", "111", 10)
	b.admitAll(t, m)
	finishOne(t, b, claimOne(t, b, m.SKey))
	late := edited(m, "5", "other")
	b.admitAll(t, late)
	b.requireIgnored(t, late, ignoredLate)
	require.Equal(t, m.Text, b.body(t, m).Text)
	require.Equal(t, store.Idle, b.session(t, m).State)
}

func TestEdit_IsIgnoredWhereItHasNoEffect(t *testing.T) {
	t.Parallel()
	m, help := message("telegram", "111", 1), slash("telegram", "111", 2, "help")
	stranger := edited(m, "9", "let me in")
	stranger.Refusal = event.RefusedStranger
	for name, c := range map[string]struct {
		edit *event.Message
		why  reason
	}{
		"never admitted": {edited(message("telegram", "111", 3), "1", "x"), ignoredUnknown},
		"a command":      {edited(help, "1", "/stop"), ignoredKind},
		"overtaken":      {edited(m, "6", "x"), ignoredOld},
		"the same":       {edited(m, "7", "newer"), ignoredOld},
		"a stranger":     {stranger, ignoredRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.admitAll(t, m, help, edited(m, "7", "newer"))
			b.admitAll(t, c.edit)
			b.requireIgnored(t, c.edit, c.why)
			require.Equal(t, "newer", b.body(t, m).Text)
			require.EqualValues(t, 2, b.session(t, m).LastSeq)
		})
	}
}

func TestEdit_OfAMessageWithoutASession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	e := edited(message("telegram", "111", 1), "1", "x")
	b.admitAll(t, e)
	b.requireIgnored(t, e, ignoredUnknown)
	_, err := b.store.Session(t.Context(), e.SKey)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lower, higher string }{
		{"", "1"},
		{"9", "10"},
		{"1767225610", "1767225620"},
		{"99999999999999999998", "99999999999999999999"},
		{"0000000010.0000000007", "0000000010.0000000008"},
		{"a", "b"},
	} {
		require.Negative(t, compareVersions(c.lower, c.higher))
		require.Positive(t, compareVersions(c.higher, c.lower))
		require.Zero(t, compareVersions(c.higher, c.higher))
	}
}

// album is message n of a chat, joined from items with these captions.
func album(chat string, n int, captioned ...string) *event.Message {
	m := message("telegram", chat, n)
	m.Group, m.Text = fmt.Sprint("g", n), ""
	for i, caption := range captioned {
		uid := itemUID(m, n+i)
		m.ItemUIDs = append(m.ItemUIDs, uid)
		m.Attachments = append(m.Attachments, event.Attachment{Kind: "image", Ref: fmt.Sprint("p", i), Caption: caption, ItemUID: uid})
	}
	m.Text = event.Captions(m.Attachments)
	m.UID = event.UID(m.Tenant, m.Source, fmt.Sprint(m.ItemUIDs), event.KindMessage, "")
	return m
}

func itemUID(m *event.Message, n int) string {
	return event.UID(m.Tenant, m.Source, fmt.Sprint(n), event.KindMessage, "")
}

// itemOf is an item of an album as it comes when it comes alone.
func itemOf(m *event.Message, i int) *event.Message {
	one := *m
	one.ItemUIDs, one.Attachments = m.ItemUIDs[i:i+1], m.Attachments[i:i+1]
	one.Text, one.UID = one.Attachments[0].Caption, one.ItemUIDs[0]
	return &one
}

func refs(m event.Message) []string {
	var refs []string
	for _, a := range m.Attachments {
		refs = append(refs, a.Ref)
	}
	return refs
}

func TestEdit_OfAnItemOfAnAlbum(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := album("111", 20, "before", "", "after - compare them")
	b.admitAll(t, m)
	item := func(n int, version, text string) *event.Message {
		e := message("telegram", "111", n)
		return edited(e, version, text)
	}
	b.admitAll(t, item(22, "5", "after"), item(20, "5", "first"))
	require.Equal(t, "first\n\nafter", b.body(t, m).Text)
	require.Equal(t, "first", b.body(t, m).Attachments[0].Caption)
	b.admitAll(t, item(21, "6", "between"))
	require.Equal(t, "first\n\nbetween\n\nafter", b.body(t, m).Text)

	for text, e := range map[reason]*event.Message{ignoredOld: item(20, "5", "x"), ignoredUnchanged: item(21, "7", "between")} {
		b.admitAll(t, e)
		b.requireIgnored(t, e, text)
	}
	require.EqualValues(t, 1, b.session(t, m).LastSeq)
}

func TestING06_AlbumsWhoseItemsComeAgain(t *testing.T) {
	t.Parallel()
	whole := album("111", 20, "before", "", "after - compare them")
	for name, c := range map[string]struct {
		before []*event.Message
		again  *event.Message
		// left are the attachments that are still new.
		left []string
		text string
	}{
		"all of it":         {[]*event.Message{whole}, whole, nil, ""},
		"one item":          {[]*event.Message{whole}, itemOf(whole, 1), nil, ""},
		"joined in part":    {[]*event.Message{whole}, album("111", 20, "before", ""), nil, ""},
		"one was alone":     {[]*event.Message{itemOf(whole, 0)}, whole, []string{"p1", "p2"}, "after - compare them"},
		"two were joined":   {[]*event.Message{album("111", 20, "before", "")}, whole, []string{"p2"}, "after - compare them"},
		"the last was lone": {[]*event.Message{itemOf(whole, 2)}, whole, []string{"p0", "p1"}, "before"},
		"all were alone":    {[]*event.Message{itemOf(whole, 0), itemOf(whole, 1), itemOf(whole, 2)}, whole, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.admitAll(t, c.before...)
			b.admitAll(t, c.again)
			if c.left == nil {
				last := b.rec.events[len(b.rec.events)-1]
				require.Equal(t, event.MessageIgnored, last.Type)
				require.Equal(t, "known", last.Outcome)
				require.EqualValues(t, len(c.before), b.session(t, whole).LastSeq)
				return
			}
			stored := b.body(t, c.again)
			require.Equal(t, c.left, refs(stored))
			require.Equal(t, c.text, stored.Text)
			require.Len(t, stored.ItemUIDs, len(c.left))
			known, err := b.store.KnownItems(t.Context(), whole.SKey, whole.ItemUIDs)
			require.NoError(t, err)
			require.Equal(t, whole.ItemUIDs, known)
		})
	}
}

func TestING06_AlbumIsOneMessageWithItsAttachmentsInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m := album("111", 20, "before", "", "after - compare them")
	b.admitAll(t, m, m)
	stored := b.body(t, m)
	require.Equal(t, []string{"p0", "p1", "p2"}, refs(stored))
	require.Equal(t, "before\n\nafter - compare them", stored.Text)
	require.EqualValues(t, 1, b.session(t, m).LastSeq)
	require.Len(t, b.rec.runs, 1)
}

func TestAlbum_WithoutCaptionsKeepsItsText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, rest := album("111", 20, ""), album("111", 20, "", "")
	rest.Text = "typed elsewhere"
	b.admitAll(t, first, rest)
	require.Equal(t, "typed elsewhere", b.body(t, rest).Text)
	require.Equal(t, []string{"p1"}, refs(b.body(t, rest)))
}

func TestCut_BeforeWhatReadsTheStore(t *testing.T) {
	t.Parallel()
	m := message("telegram", "111", 1)
	for name, second := range map[string]*event.Message{
		"edit": edited(m, "1", "x"), "album": album("111", 2, "a", "b"), "new": slash("telegram", "111", 2, "new"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			now, later := cut([]*candidate{b.entry(t, m), b.entry(t, second), b.raw(t, 0, bus.Msg{Data: []byte{0xff}})})
			require.Len(t, now, 1)
			require.Len(t, later, 2)
		})
	}
}
