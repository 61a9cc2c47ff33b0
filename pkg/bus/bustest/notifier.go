package bustest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

func notifierTests() map[string]func(t *testing.T, b bus.Bus) {
	return map[string]func(t *testing.T, b bus.Bus){
		"DeliversWhatIsSentAfterListenReturned": listenAfterReturn,
		"MatchesWildcards":                      listenWildcards,
		"KeepsOrderPerSubject":                  listenKeepsOrder,
		"ManyListenersShareAChannel":            listenShared,
		"EveryListenerGetsTheMessage":           listenEvery,
		"DropsWhenTheChannelIsFull":             listenDrops,
		"DeliversNothingAfterClose":             listenClose,
		"NotifyWithoutListenerIsNoError":        notifyNobody,
		"NotifyRefusesWhatIsTooLarge":           notifyTooLarge,
		"RequestReturnsTheAnswer":               requestAnswer,
		"RequestReportsThatNobodyListens":       requestNobody,
		"RequestEndsWithItsContext":             requestEnds,
	}
}

func shortly(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 300*time.Millisecond)
}

func listen(t *testing.T, b bus.Bus, subject string, ch chan<- bus.Msg) bus.Subscription {
	t.Helper()
	s, err := b.Listen(subject, ch)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func notify(t *testing.T, b bus.Bus, subject, data string) {
	t.Helper()
	require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: subject, Data: []byte(data)}))
}

func listenAfterReturn(t *testing.T, b bus.Bus) {
	for i := range 100 {
		ch := make(chan bus.Msg, 1)
		subject := fmt.Sprintf("ctl.%02d.s", i)
		listen(t, b, subject, ch)
		notify(t, b, subject, "now")
		require.Equal(t, "now", string(receive(t, ch).Data))
	}
}

func listenWildcards(t *testing.T, b bus.Bus) {
	one, rest := make(chan bus.Msg, 8), make(chan bus.Msg, 8)
	listen(t, b, "dlt.*.s", one)
	listen(t, b, "dlt.>", rest)
	notify(t, b, "dlt.07.other", "a")
	notify(t, b, "dlt.07.s", "b")
	notify(t, b, "dlt.07.s.deep", "c")
	require.Equal(t, "b", string(receive(t, one).Data))
	for _, want := range []string{"a", "b", "c"} {
		require.Equal(t, want, string(receive(t, rest).Data))
	}
	require.Empty(t, one)
}

func listenKeepsOrder(t *testing.T, b bus.Bus) {
	const n = 1000
	ch := make(chan bus.Msg, n)
	listen(t, b, "dlt.07.s", ch)
	for i := range n {
		notify(t, b, "dlt.07.s", fmt.Sprint(i))
	}
	for i := range n {
		require.Equal(t, fmt.Sprint(i), string(receive(t, ch).Data))
	}
}

func listenShared(t *testing.T, b bus.Bus) {
	ch := make(chan bus.Msg, 8)
	listen(t, b, "ctl.01.a", ch)
	listen(t, b, "ctl.02.b", ch)
	require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: "ctl.01.a", Header: bus.Header{"k": {"v"}}, Data: []byte("1")}))
	notify(t, b, "ctl.02.b", "2")
	first := receive(t, ch)
	require.Equal(t, "ctl.01.a", first.Subject)
	require.Equal(t, "v", first.Header.Get("k"))
	require.Equal(t, "ctl.02.b", receive(t, ch).Subject)
}

func listenEvery(t *testing.T, b bus.Bus) {
	one, two := make(chan bus.Msg, 1), make(chan bus.Msg, 1)
	listen(t, b, "ctl.01.a", one)
	listen(t, b, "ctl.01.a", two)
	notify(t, b, "ctl.01.a", "x")
	require.Equal(t, "x", string(receive(t, one).Data))
	require.Equal(t, "x", string(receive(t, two).Data))
}

func listenDrops(t *testing.T, b bus.Bus) {
	full, other := make(chan bus.Msg, 1), make(chan bus.Msg, 1)
	listen(t, b, "ctl.01.full", full)
	listen(t, b, "ctl.01.other", other)
	notify(t, b, "ctl.01.full", "kept")
	notify(t, b, "ctl.01.full", "dropped")
	notify(t, b, "ctl.01.other", "after")
	require.Equal(t, "after", string(receive(t, other).Data))
	require.Equal(t, "kept", string(receive(t, full).Data))
	require.Empty(t, full)
}

func listenClose(t *testing.T, b bus.Bus) {
	closed, other := make(chan bus.Msg, 8), make(chan bus.Msg, 8)
	s := listen(t, b, "ctl.01.a", closed)
	listen(t, b, "ctl.01.*", other)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	notify(t, b, "ctl.01.a", "x")
	receive(t, other)
	require.Empty(t, closed)
}

func notifyNobody(t *testing.T, b bus.Bus) {
	require.NoError(t, b.Notify(t.Context(), bus.Msg{Subject: "ctl.01.nobody"}))
}

func notifyTooLarge(t *testing.T, b bus.Bus) {
	require.ErrorIs(t, b.Notify(t.Context(), bus.Msg{Subject: "dlt.01.a", Data: tooLarge()}), bus.ErrTooLarge)
}

func requestAnswer(t *testing.T, b bus.Bus) {
	ch := make(chan bus.Msg, 1)
	listen(t, b, "snap.01.a", ch)
	done := make(chan struct{})
	go func() {
		defer close(done)
		q := <-ch
		_ = b.Notify(t.Context(), bus.Msg{Subject: q.Reply, Header: bus.Header{"n": {"7"}}, Data: append(q.Data, '!')})
	}()
	answer, err := b.Request(t.Context(), bus.Msg{Subject: "snap.01.a", Data: []byte("hello")})
	require.NoError(t, err)
	require.Equal(t, "hello!", string(answer.Data))
	require.Equal(t, "7", answer.Header.Get("n"))
	<-done
}

func requestNobody(t *testing.T, b bus.Bus) {
	_, err := b.Request(t.Context(), bus.Msg{Subject: "snap.01.nobody"})
	require.ErrorIs(t, err, bus.ErrNoResponder)
}

func requestEnds(t *testing.T, b bus.Bus) {
	ch := make(chan bus.Msg, 1)
	listen(t, b, "snap.01.a", ch)
	ctx, cancel := shortly(t)
	defer cancel()
	_, err := b.Request(ctx, bus.Msg{Subject: "snap.01.a"})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
