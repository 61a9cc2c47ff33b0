package delivery_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/services/egress/internal/delivery"
	"github.com/hermes-runtime/hermes/services/egress/internal/egresstest"
)

// deliver starts one process without Redis.
func deliver(t *testing.T, change ...func(*egresstest.Env)) *egresstest.Env {
	t.Helper()
	e := egresstest.New(t)
	for _, c := range change {
		c(e)
	}
	e.Start("e1", egresstest.Options{DeliversOnly: true, WithoutRedis: true})
	return e
}

// answer leaves the answer of a run and rings.
func answer(e *egresstest.Env, chat, text string) (*egresstest.Run, int64) {
	r := e.Begin(chat)
	outSeq := r.Commit(text)
	e.Ring(r.SKey, outSeq)
	return r, outSeq
}

func awaitSent(t *testing.T, e *egresstest.Env, r *egresstest.Run, outSeq int64) {
	t.Helper()
	await.True(t, soon, func() bool { return e.Settled(r.SKey) == outSeq }, "row %d settled", outSeq)
}

func TestRate_AChatThatIsFullWaitsAndOthersDoNot(t *testing.T) {
	t.Parallel()
	e := deliver(t, func(e *egresstest.Env) {
		e.Platform.Rates = func(a event.Address) []ratelimit.Bucket {
			return []ratelimit.Bucket{{Key: "bot", Rate: 100, Burst: 100}, {Key: "chat:" + a.ChatID, Rate: 0.01, Burst: 1}}
		}
	})
	first, n := answer(e, "a", "one")
	awaitSent(t, e, first, n)
	second, m := answer(e, "a", "two")
	await.True(t, soon, e.Acknowledged, "put off")
	other, o := answer(e, "b", "hi")
	awaitSent(t, e, other, o)
	require.Equal(t, []string{"one"}, e.Platform.Shown("a"))
	require.Equal(t, 1, e.Pass(200*time.Second))
	awaitSent(t, e, second, m)
	require.Len(t, e.Platform.Requests("a"), 2, "nothing was sent for nothing")
}

func TestRate_AShortWaitKeepsTheRowInHand(t *testing.T) {
	t.Parallel()
	e := deliver(t, func(e *egresstest.Env) {
		e.Platform.Rates = func(event.Address) []ratelimit.Bucket { return []ratelimit.Bucket{{Key: "chat", Rate: 2, Burst: 1}} }
	})
	r := e.Begin("a")
	outSeq := r.Commit("one", "two", "three")
	e.Ring(r.SKey, outSeq-2)
	awaitSent(t, e, r, outSeq)
	require.Equal(t, []string{"one", "two", "three"}, e.Platform.Shown("a"))
}

func TestRate_ManyWaitsDoNotUseUpTheTries(t *testing.T) {
	t.Parallel()
	e := deliver(t, func(e *egresstest.Env) {
		e.Platform.Rates = func(event.Address) []ratelimit.Bucket {
			return []ratelimit.Bucket{{Key: "chat", Rate: 1000, Burst: 1000}}
		}
	})
	require.NoError(t, e.Limits.Freeze(t.Context(), egresstest.Name+":"+egresstest.Account, "chat", 24*time.Hour))
	r, n := answer(e, "a", "patience")
	await.True(t, soon, e.Acknowledged)
	e.Platform.Answer(egresstest.Send, egresstest.Failure(channel.NotSent))
	for range 24 {
		require.Equal(t, 1, e.Pass(time.Hour))
		await.True(t, soon, e.Acknowledged)
	}
	await.True(t, soon, func() bool { e.Pass(time.Hour); return e.Settled(r.SKey) == n })
	require.Equal(t, []string{"patience"}, e.Platform.Shown("a"))
}

// logs collects records; it is safe for concurrent use.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

func TestCredential_AnAccountThatIsRefusedIsPausedWithAllItsRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var alerts logs
	p := &plain{script: []error{&channel.SendError{Class: channel.Credential, Status: http.StatusUnauthorized, Err: egresstest.ErrScripted}}}
	b.start(func(d *delivery.Deps) {
		d.Senders = map[string]channel.Sender{plainName: p}
		d.Logger = slog.New(slog.NewTextHandler(&alerts, &slog.HandlerOptions{Level: slog.LevelError}))
	})
	skeys := []string{b.reply("a", "m1", plainName, channel.Part{Markdown: "one"})}
	b.ring(plainName, skeys[0], 1)
	b.awaitSends(p, "a|one")
	b.awaitDrained()
	for i := range 5 {
		skey := b.reply(fmt.Sprint("b", i), "m2", plainName, channel.Part{Markdown: "two"})
		b.ring(plainName, skey, 1)
		skeys = append(skeys, skey)
	}
	b.awaitDrained()
	require.Len(t, p.sends(), 1, "nothing is sent for the account")
	require.Zero(t, b.sweep(40*time.Second), "all of them wait")
	require.Equal(t, 1, alerts.count("level=ERROR"), "one alert")
	for _, skey := range skeys {
		require.Zero(t, b.session(skey).OutSent)
	}
}

func TestMoved_LaterPartsAndMessagesGoToTheNewAddressAndTheAliasIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(&channel.SendError{Class: channel.Moved, MovedTo: "-1007", Err: egresstest.ErrScripted})
	skey := b.reply("-7", "m1", plainName, channel.Part{Markdown: "aaaaaaaaaabb"})
	b.ring(plainName, skey, 1)
	b.awaitSettled(skey, 1)
	b.reply("-7", "m2", plainName, channel.Part{Markdown: "next"})
	b.ring(plainName, skey, 2)
	b.awaitSettled(skey, 2)
	require.Equal(t, []string{"-7|aaaaaaaaaa", "-1007|aaaaaaaaaa", "-1007|bb", "-1007|next"}, p.sends())
	await.True(t, soon, func() bool {
		canonical, err := b.Store.ResolveAliases(t.Context(), []store.Address{
			{Tenant: "default", Platform: plainName, Account: "ci", ID: "-1007"},
		})
		return err == nil && canonical[0] == "-7"
	}, "alias stored")
}

func TestMoved_ToTheSamePlaceIsNotFollowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := b.startPlain(&channel.SendError{Class: channel.Moved, MovedTo: "c", Err: egresstest.ErrScripted})
	skey := b.reply("c", "m1", plainName, channel.Part{Markdown: "hi"})
	b.ring(plainName, skey, 1)
	b.awaitSettled(skey, 1)
	require.Equal(t, []string{"c|hi"}, p.sends())
	b.awaitOutcome(event.DeliveryFailed, "dead")
}

// EGR-08: a recipient that can no longer be reached.
func TestEGR08_ABlockedChatIsTriedOnceAndOthersAreServed(t *testing.T) {
	t.Parallel()
	e := deliver(t)
	e.Platform.Answer(egresstest.Send, egresstest.Failure(channel.Permanent))
	blocked, n := answer(e, "chat1", "reply to chat 1")
	awaitSent(t, e, blocked, n)
	other, m := answer(e, "chat2", "reply to chat 2")
	awaitSent(t, e, other, m)
	again, k := answer(e, "chat1", "second reply to chat 1")
	awaitSent(t, e, again, k)
	require.Len(t, e.Platform.Requests("chat1"), 2, "one try each")
	await.True(t, soon, func() bool { return len(e.Outcomes(event.ProcessingCompleted)) == 3 })
	require.Equal(t, []string{"dead"}, e.Outcomes(event.DeliveryFailed))
	s, err := e.Store.Session(t.Context(), blocked.SKey)
	require.NoError(t, err)
	require.Equal(t, store.Idle, s.State)
}
