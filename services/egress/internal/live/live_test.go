package live_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/natsserver"
	"github.com/hermes-runtime/hermes/pkg/testkit/redisserver"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	"github.com/hermes-runtime/hermes/services/egress/internal/egresstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redisserver.IgnoreProbes(), natsserver.IgnoreClock())
}

const (
	soon = 20 * time.Second
	chat = "room"
)

var showsOnly = egresstest.Options{ShowsOnly: true}

func awaitShown(t *testing.T, e *egresstest.Env, want ...string) {
	t.Helper()
	await.True(t, soon, func() bool { return slices.Equal(e.Platform.Shown(chat), want) }, "shown: %q", want)
}

func awaitOver(t *testing.T, p *egresstest.Process) {
	t.Helper()
	await.True(t, soon, func() bool { return p.Watcher.Shows() == 0 }, "no show")
}

// stop asks a process to show a run no more, and returns the message that did.
func stop(t *testing.T, e *egresstest.Env, egressID string, r *egresstest.Run) string {
	t.Helper()
	answer, err := e.Bus.Request(t.Context(), bus.Msg{Subject: bus.PreviewSubject(egressID), Data: request(t, r)})
	require.NoError(t, err)
	return platformID(t, answer)
}

func request(t *testing.T, r *egresstest.Run) []byte {
	t.Helper()
	data, err := proto.Marshal(&deliveryv1.PreviewStop{Skey: r.SKey, RunId: r.ID.String()})
	require.NoError(t, err)
	return data
}

func platformID(t *testing.T, answer bus.Msg) string {
	t.Helper()
	var stopped deliveryv1.PreviewStopped
	require.NoError(t, proto.Unmarshal(answer.Data, &stopped))
	return stopped.GetPlatformId()
}

func noted(t *testing.T, e *egresstest.Env, r *egresstest.Run) []string {
	t.Helper()
	ids, err := e.Store.Previews(t.Context(), r.SKey, r.ID)
	require.NoError(t, err)
	return ids
}

func TestWatcher_TypesUntilTheRunEnds(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Every, e.Platform.TypeEvery = 0, 10*time.Millisecond
	p := e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Typing)) >= 3 })
	r.Say("hello")
	r.Finish("hello")
	awaitOver(t, p)
	require.Empty(t, e.Platform.Shown(chat), "there are no previews in this chat")
}

func TestWatcher_ShowsTheAnswerInOneMessageWhileItIsWritten(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.Every = 50 * time.Millisecond
	p := e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	var want string
	for i := range 200 {
		r.Say(fmt.Sprintf("%d ", i))
		want += fmt.Sprintf("%d ", i)
	}
	awaitShown(t, e, want)
	previews := e.Platform.Requests(chat, egresstest.Preview)
	require.Less(t, len(previews), 100, "deltas are merged")
	require.Empty(t, previews[0].ID)
	r.Say("end")
	awaitShown(t, e, want+"end")
	require.Equal(t, []string{"m1"}, noted(t, e, r))

	r.Finish(want)
	awaitOver(t, p)
	holder, err := e.Leases().PreviewHolder(t.Context(), r.SKey)
	require.NoError(t, err)
	require.Empty(t, holder)
}

func TestWatcher_ShowsTheTextOfTheCurrentStepOnly(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	r.Say("let me look")
	awaitShown(t, e, "let me look")
	r.Step()
	r.Say("it is")
	awaitShown(t, e, "it is")
}

func TestWatcher_StartsOverWithAnotherAttempt(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	r.Say("first try")
	awaitShown(t, e, "first try")
	r.Restart()
	r.Say("second")
	awaitShown(t, e, "second")
}

func TestWatcher_JoinsARunLate(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Start("e1", showsOnly)
	r := e.Begin(chat)
	r.Say("said before anybody looked")
	r.Start()
	awaitShown(t, e, "said before anybody looked")
}

func TestWatcher_TypesOnlyWithoutRedis(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.TypeEvery = 10 * time.Millisecond
	p := e.Start("e1", egresstest.Options{ShowsOnly: true, WithoutRedis: true})
	r := e.Begin(chat).Start()
	r.Say("hello")
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Typing)) >= 3 })
	r.Finish("hello")
	awaitOver(t, p)
	require.Empty(t, e.Platform.Requests(chat, egresstest.Preview))
}

func TestWatcher_LeavesAPreviewThatIsHeldElsewhereUntilItIsFree(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.TypeEvery = 10 * time.Millisecond
	other := e.Leases()
	r := e.Begin(chat)
	held, err := other.HoldPreview(t.Context(), r.SKey, "e2")
	require.NoError(t, err)
	require.True(t, held)
	e.Start("e1", showsOnly)
	r.Start()
	r.Say("hello")
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Typing)) >= 3 })
	require.Empty(t, e.Platform.Requests(chat, egresstest.Preview))
	require.NoError(t, other.DropPreview(t.Context(), r.SKey, "e2"))
	awaitShown(t, e, "hello")
}

func TestWatcher_GoesOnWithTheMessageOfAProcessThatIsGone(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	r := e.Begin(chat)
	id := e.Platform.Put(chat, "hel")
	require.NoError(t, e.Store.NotePreview(t.Context(), r.SKey, r.ID, id, "gone"))
	e.Start("e1", showsOnly)
	r.Start()
	r.Say("hello")
	awaitShown(t, e, "hello")
	require.Equal(t, []string{id}, noted(t, e, r))
}

func TestWatcher_ShowsNothingOfARunThatHasEnded(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	p := e.Start("e1", showsOnly)
	r := e.Begin(chat)
	r.Say("hello")
	r.Commit("hello")
	r.Start()
	// The next run is shown, so the event of the first one was seen.
	next := e.Begin("other").Start()
	next.Say("hi")
	await.True(t, soon, func() bool { return slices.Equal(e.Platform.Shown("other"), []string{"hi"}) })
	await.True(t, soon, func() bool { return p.Watcher.Shows() == 1 })
	require.Empty(t, e.Platform.Requests(chat, egresstest.Preview))
}

func TestWatcher_PassesOverOldEvents(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.TypeEvery = time.Hour
	e.Start("e1", showsOnly)
	e.Begin(chat).Tell(time.Now().Add(-time.Hour))
	e.Begin("other").Start()
	await.True(t, soon, func() bool { return len(e.Platform.Requests("other", egresstest.Typing)) == 1 })
	require.Empty(t, e.Platform.Requests(chat))
}

func TestWatcher_ShowsARunOnceHoweverOftenItIsTold(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	e.Platform.TypeEvery = time.Hour
	e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	r.Tell(time.Now())
	r.Tell(time.Now())
	e.Begin("other").Start()
	await.True(t, soon, func() bool { return len(e.Platform.Requests("other", egresstest.Typing)) == 1 })
	require.Len(t, e.Platform.Requests(chat, egresstest.Typing), 1)
}

func TestStop_IsAnsweredWhenNoEditIsOnItsWayAnyMore(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	began, release := make(chan struct{}, 1), make(chan struct{})
	e.Platform.Before = func(r egresstest.Request) {
		if r.Kind == egresstest.Preview {
			began <- struct{}{}
			<-release
		}
	}
	p := e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	r.Say("hello")
	<-began
	answers := make(chan bus.Msg, 1)
	sub, err := e.Bus.Listen("test.stopped", answers)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sub.Close()) })
	require.NoError(t, e.Bus.Notify(t.Context(), bus.Msg{Subject: bus.PreviewSubject("e1"), Reply: "test.stopped", Data: request(t, r)}))
	require.Empty(t, stop(t, e, "e1", e.Begin("other")), "a run that is not shown; the first request was taken before")
	require.Empty(t, answers, "an edit is on its way")

	close(release)
	select {
	case m := <-answers:
		require.Equal(t, "m1", platformID(t, m))
	case <-time.After(soon):
		require.FailNow(t, "no answer")
	}
	awaitOver(t, p)
	r.Say("more")
	require.Empty(t, stop(t, e, "e1", r), "it is over")
	require.Len(t, e.Platform.Requests(chat, egresstest.Preview), 1)
}

func TestPreview_GivesUpWhereAnotherTryWouldShowItTwice(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"unknown":    egresstest.Failure(channel.Unknown),
		"credential": egresstest.Failure(channel.Credential),
		"moved":      egresstest.Failure(channel.Moved),
		"thread":     &channel.SendError{Class: channel.Permanent, ThreadGone: true, Err: errors.New("thread")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := egresstest.New(t)
			e.Platform.Answer(egresstest.Preview, failure)
			p := e.Start("e1", showsOnly)
			r := e.Begin(chat).Start()
			r.Say("hello")
			await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Preview)) == 1 })
			r.Say("more")
			r.Finish("hello more")
			awaitOver(t, p)
			require.Len(t, e.Platform.Requests(chat, egresstest.Preview), 1)
			require.Empty(t, noted(t, e, r))
		})
	}
}

func TestPreview_TriesAgainWhatWasRefusedAndThenGivesUp(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	refused := egresstest.Failure(channel.Permanent)
	e.Platform.Answer(egresstest.Preview, refused, refused, nil, refused, refused, refused)
	p := e.Start("e1", showsOnly)
	r := e.Begin(chat).Start()
	r.Say("hello")
	awaitShown(t, e, "hello")
	r.Say(" you")
	await.True(t, soon, func() bool { return len(e.Platform.Requests(chat, egresstest.Preview)) == 6 })
	r.Say(" there")
	r.Finish("hello you there")
	awaitOver(t, p)
	require.Len(t, e.Platform.Requests(chat, egresstest.Preview), 6)
}

func TestStop_EndsAllShowsAndFreesTheirPreviews(t *testing.T) {
	t.Parallel()
	e := egresstest.New(t)
	p := e.Build("e1", showsOnly)
	require.NoError(t, p.Watcher.Stop(t.Context()), "before Start")
	require.NoError(t, p.Watcher.Start(t.Context()))
	r := e.Begin(chat).Start()
	r.Say("hello")
	awaitShown(t, e, "hello")
	require.NoError(t, p.Watcher.Stop(t.Context()))
	require.Zero(t, p.Watcher.Shows())
	holder, err := e.Leases().PreviewHolder(t.Context(), r.SKey)
	require.NoError(t, err)
	require.Empty(t, holder)
	require.NoError(t, p.Watcher.Stop(t.Context()), "twice")
}
