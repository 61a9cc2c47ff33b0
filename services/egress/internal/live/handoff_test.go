package live_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/services/egress/internal/egresstest"
)

var (
	both         = egresstest.Options{}
	deliversOnly = egresstest.Options{DeliversOnly: true}
)

func awaitSettled(t *testing.T, e *egresstest.Env, r *egresstest.Run, outSeq int64) {
	t.Helper()
	await.True(t, soon, func() bool { return e.Settled(r.SKey) == outSeq }, "row %d settled", outSeq)
}

// last is the newest request for a chat.
func last(t *testing.T, e *egresstest.Env) egresstest.Request {
	t.Helper()
	all := e.Platform.Requests(chat)
	require.NotEmpty(t, all)
	return all[len(all)-1]
}

func TestHandOff_TheFinalTextReplacesThePreviewOfAnotherProcess(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	shows := e.Start("e1", showsOnly)
	e.Start("e2", deliversOnly)
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitShown(t, e, "hel")
	for range 50 { // edits are on their way all the time
		r.Say("lo")
	}
	awaitSettled(t, e, r, r.Finish("hello, world"))
	awaitOver(t, shows)
	require.Equal(t, egresstest.Request{
		Kind: egresstest.Edit, Target: egresstest.Address(chat), Text: "hello, world", ID: "m1",
	}, last(t, e), "no late edit follows")
	require.Equal(t, []string{"hello, world"}, e.Platform.Shown(chat))
	require.Empty(t, e.Platform.Requests(chat, egresstest.Send, egresstest.Delete))
	require.Empty(t, noted(t, e, r), "forgotten")
}

func TestHandOff_AfterACrashOfTheHolderTheStoreLeadsToThePreview(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e2", both)
	r := e.Begin(chat)
	first := e.Platform.Put(chat, "hel")
	second := e.Platform.Put(chat, "hell")
	for _, id := range []string{first, second} {
		require.NoError(t, e.Store.NotePreview(t.Context(), r.SKey, r.ID, id, "dead"))
	}
	held, err := e.Leases().HoldPreview(t.Context(), r.SKey, "dead")
	require.NoError(t, err)
	require.True(t, held)
	awaitSettled(t, e, r, r.Finish("hello"))
	require.Equal(t, []string{"hello"}, e.Platform.Shown(chat))
	require.Equal(t, []egresstest.Request{
		{Kind: egresstest.Delete, Target: egresstest.Address(chat), ID: first},
		{Kind: egresstest.Edit, Target: egresstest.Address(chat), Text: "hello", ID: second},
	}, e.Platform.Requests(chat))
	require.Empty(t, noted(t, e, r))
}

func TestHandOff_WithoutRedisTheStoreLeadsToThePreview(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", both)
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitShown(t, e, "hel")
	e.Redis.Close()
	awaitSettled(t, e, r, r.Finish("hello"))
	require.Equal(t, []string{"hello"}, e.Platform.Shown(chat))
}

func TestHandOff_WithoutLeasesTheFinalTextIsAMessage(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", egresstest.Options{WithoutRedis: true})
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitSettled(t, e, r, r.Finish("hello"))
	require.Equal(t, []string{"hello"}, e.Platform.Shown(chat))
	require.Len(t, e.Platform.Requests(chat, egresstest.Send), 1)
	require.Empty(t, e.Platform.Requests(chat, egresstest.Preview))
}

func TestHandOff_EveryTryReplacesTheSameMessage(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Answer(egresstest.Edit, egresstest.Failure(channel.NotSent))
	e.Start("e1", both)
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitShown(t, e, "hel")
	outSeq := r.Finish("hello")
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Edit)) == 1 })
	await.True(t, soon, func() bool { e.Pass(2 * time.Second); return e.Settled(r.SKey) == outSeq })
	require.Equal(t, []string{"hello"}, e.Platform.Shown(chat))
	require.Len(t, e.Platform.Requests(chat, egresstest.Edit), 2)
}

func TestHandOff_OnlyTheFirstReplyOfARunReplacesItsPreview(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", both)
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitShown(t, e, "hel")
	outSeq := r.Commit("hello", "and that was all")
	e.Ring(r.SKey, outSeq-1)
	awaitSettled(t, e, r, outSeq)
	require.Equal(t, []string{"hello", "and that was all"}, e.Platform.Shown(chat))
}

func TestHandOff_AnEmptyReplyTakesThePreviewAway(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", both)
	r := e.Begin(chat).Start()
	r.Say("hel")
	awaitShown(t, e, "hel")
	e.Ring(r.SKey, r.CommitParts())
	awaitShown(t, e)
	require.Empty(t, noted(t, e, r))
}

// perChat are limits that tests close by the key of a chat.
func perChat(target event.Address) []ratelimit.Bucket {
	return []ratelimit.Bucket{{Key: "bot", Rate: 1000, Burst: 1000}, {Key: "chat:" + target.ChatID, Rate: 1000, Burst: 1000}}
}

// EGR-04: rate limit during streaming edits.
func TestEGR04_NoRequestForTheChatWhileThePlatformAsksForTime(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Rates = perChat
	e.Platform.TypeEvery = 50 * time.Millisecond
	e.Platform.Answer(egresstest.Preview, nil, nil, nil, egresstest.TooMany(33*time.Second, "chat:"+chat))
	shows := e.Start("e1", showsOnly)
	e.Start("e2", deliversOnly)
	r := e.Begin(chat).Start()
	previews := func() int { return len(e.Platform.Requests(chat, egresstest.Preview)) }
	deltas := 0
	for n := 1; n <= 4; n++ {
		for range 100 {
			r.Say("word ")
			deltas++
		}
		await.True(t, soon, func() bool { return previews() >= n })
	}
	await.True(t, soon, func() bool { return previews() == 4 })
	require.Less(t, previews(), deltas)
	before := len(e.Platform.Requests(chat))

	r.Say("and more")
	outSeq := r.Finish("the complete final text")
	awaitOver(t, shows)
	other := e.Begin("other")
	e.Ring(other.SKey, other.Commit("hi"))
	await.True(t, soon, func() bool { return slices.Equal(e.Platform.Shown("other"), []string{"hi"}) })
	s, err := e.Store.Run(t.Context(), r.ID)
	require.NoError(t, err)
	require.False(t, s.EndedAt.IsZero(), "the run does not wait for the edit")

	await.True(t, soon, e.Acknowledged, "the row is put off")
	require.Zero(t, e.Pass(10*time.Second), "nothing is due")
	require.Len(t, e.Platform.Requests(chat), before, "no request during the wait")
	require.Zero(t, e.Settled(r.SKey))

	require.Equal(t, 1, e.Pass(30*time.Second))
	awaitSettled(t, e, r, outSeq)
	require.Len(t, e.Platform.Requests(chat), before+1)
	require.Equal(t, []string{"the complete final text"}, e.Platform.Shown(chat), "one message, nothing cut")
}

func TestEGR04_AFinalTextThatIsRefusedIsNotRepeatedDuringTheWait(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Rates = perChat
	e.Platform.Answer(egresstest.Send, egresstest.TooMany(33*time.Second, "chat:"+chat))
	e.Start("e1", both)
	r := e.Begin(chat)
	outSeq := r.Finish("hello")
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat)) == 1 })
	await.True(t, soon, e.Acknowledged)
	require.Zero(t, e.Pass(20*time.Second))
	require.Len(t, e.Platform.Requests(chat), 1)
	require.Equal(t, 1, e.Pass(30*time.Second))
	awaitSettled(t, e, r, outSeq)
	require.Len(t, e.Platform.Requests(chat), 2)
}

// EGR-05: editing a message to the text it already has.
func TestEGR05_AFinalEditThatChangesNothingIsDelivered(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"not modified": false, "the user deleted the preview": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := egresstest.New(t)
			e.Start("e1", both)
			r := e.Begin(chat).Start()
			r.Say("Hello")
			awaitShown(t, e, "Hello")
			if deleted {
				e.Platform.Remove(chat, "m1")
			}
			awaitSettled(t, e, r, r.Finish("Hello"))
			require.Equal(t, []string{"Hello"}, e.Platform.Shown(chat))
			require.Len(t, e.Platform.Requests(chat, egresstest.Edit), 1)
			require.Empty(t, e.Platform.Requests(chat, egresstest.Send))
			await.True(t, soon, func() bool { return slices.Equal(e.Outcomes(event.ResponseSent), []string{"sent"}) })
		})
	}
}

// EGR-09: replying in a topic that was deleted.
func TestEGR09_AReplyIntoATopicThatIsGoneIsSentOnceWithoutIt(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Every = 0
	e.Start("e1", both)
	topic, other := egresstest.Address("-100700"), egresstest.Address("-100700")
	topic.ThreadID, other.ThreadID = "42", "43"
	deliver := func(target event.Address, text string) {
		r := e.BeginAt(target)
		awaitSettled(t, e, r, r.Finish(text))
	}
	deliver(topic, "one")
	gone := &channel.SendError{Class: channel.Permanent, Status: 400, ThreadGone: true, Err: errors.New("thread not found")}
	e.Platform.Answer(egresstest.Send, gone)
	deliver(topic, "two")
	deliver(topic, "three")
	deliver(other, "four")
	var threads []string
	for _, r := range e.Platform.Requests("-100700") {
		threads = append(threads, r.Text+"@"+r.Target.ThreadID)
	}
	require.Equal(t, []string{"one@42", "two@42", "two@", "three@", "four@43"}, threads)
	require.Equal(t, []string{"one", "two", "three", "four"}, e.Platform.Shown("-100700"))
}
