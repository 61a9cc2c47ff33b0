package hook_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/hook"
)

// pass lets virtual time go by.
func pass(d time.Duration) { <-time.After(d) }

// queue is a subscription in memory.
type queue struct {
	opened chan bus.Queue
	ready  chan bus.Work

	mu            sync.Mutex
	acked, nacked []string
}

func newQueue() *queue {
	return &queue{opened: make(chan bus.Queue, 1), ready: make(chan bus.Work, 8192)}
}

func (q *queue) Work(_ context.Context, opened bus.Queue) (bus.Worker, error) {
	q.opened <- opened
	return q, nil
}

func (q *queue) Fetch(ctx context.Context, limit int, wait time.Duration) ([]bus.Work, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case first := <-q.ready:
		works := []bus.Work{first}
		for len(works) < limit && len(q.ready) > 0 {
			works = append(works, <-q.ready)
		}
		return works, nil
	case <-timeout.C:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// delivery is an event on its way; its name tells deliveries of one event apart.
type delivery struct {
	queue *queue
	name  string
	msg   bus.Msg
}

func (d *delivery) Msg() bus.Msg { return d.msg }

func (d *delivery) Ack() error {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.acked = append(d.queue.acked, d.name)
	return nil
}

func (d *delivery) Nak() error {
	d.queue.mu.Lock()
	defer d.queue.mu.Unlock()
	d.queue.nacked = append(d.queue.nacked, d.name)
	return nil
}

func (q *queue) push(t *testing.T, name string, ev event.Lifecycle) {
	t.Helper()
	data, err := event.EncodeLifecycle(&ev)
	require.NoError(t, err)
	q.ready <- &delivery{queue: q, name: name, msg: bus.Msg{
		Subject: bus.EventSubject(ev.SKey, string(ev.Type)), ID: hook.EventID(&ev), Data: data,
	}}
}

func (q *queue) settled() (acked, nacked []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.acked), slices.Clone(q.nacked)
}

// step is the n-th event of a session.
func step(session string, n int) event.Lifecycle {
	return event.Lifecycle{Type: event.LLMStarted, Tenant: "default", SKey: session, RunID: session, Gen: 1, N: int64(n)}
}

func name(session string, n int) string { return fmt.Sprintf("%s%d", session, n) }

// bench is a running subscriber.
type bench struct {
	*queue
	t      *testing.T
	sub    *hook.Subscriber
	reader *metric.ManualReader
}

func subscribe(t *testing.T, s hook.Subscription) *bench {
	t.Helper()
	b := &bench{queue: newQueue(), t: t, reader: metric.NewManualReader()}
	s.Name = "audit"
	var err error
	b.sub, err = hook.NewSubscriber(s, hook.SubscriberDeps{
		Bus: b.queue, Logger: quiet(), Meter: metric.NewMeterProvider(metric.WithReader(b.reader)).Meter(""),
	})
	require.NoError(t, err)
	require.NoError(t, b.sub.Start(t.Context()))
	return b
}

func (b *bench) stop() {
	b.t.Helper()
	require.NoError(b.t, b.sub.Stop(context.WithoutCancel(b.t.Context())))
}

// outcomes are the counted tries.
func (b *bench) outcomes() map[string]int64 {
	b.t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(b.t, b.reader.Collect(context.WithoutCancel(b.t.Context()), &data))
	counts := map[string]int64{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.Equal(b.t, "hermes_hook_deliveries_total", m.Name)
			for _, point := range m.Data.(metricdata.Sum[int64]).DataPoints {
				who, _ := point.Attributes.Value("hook")
				require.Equal(b.t, "audit", who.AsString())
				outcome, _ := point.Attributes.Value("outcome")
				counts[outcome.AsString()] = point.Value
			}
		}
	}
	return counts
}

// log remembers what an observer saw.
type log struct {
	mu   sync.Mutex
	seen []string
	at   []time.Time
}

func (l *log) note(ev *event.Lifecycle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen, l.at = append(l.seen, name(ev.SKey, int(ev.N))), append(l.at, time.Now())
}

func (l *log) list() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.seen)
}

func (l *log) times() []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.at)
}

func TestSubscriber_KeepsTheOrderOfASessionAndServesOthersMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error {
			if ev.SKey == "slow" {
				pass(time.Second)
			}
			l.note(ev)
			return nil
		})})
		defer b.stop()
		for n := range 4 {
			b.push(t, name("slow", n), step("slow", n))
			b.push(t, name("fast", n), step("fast", n))
		}
		pass(2500 * time.Millisecond)
		require.Equal(t, []string{"fast0", "fast1", "fast2", "fast3", "slow0", "slow1"}, l.list())
		pass(2 * time.Second)
		require.Equal(t, []string{"slow2", "slow3"}, l.list()[6:])
		acked, _ := b.settled()
		require.Len(t, acked, 8)
		require.Equal(t, map[string]int64{"delivered": 8}, b.outcomes())
	})
}

func TestSubscriber_RepeatsWithGrowingPausesAndThenGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{Retries: 3, Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error {
			l.note(ev)
			if ev.N == 0 {
				return errors.New("broken")
			}
			return nil
		})})
		defer b.stop()
		b.push(t, "first", step("a", 0))
		b.push(t, "second", step("a", 1))
		pass(time.Minute)
		require.Equal(t, []string{"a0", "a0", "a0", "a0", "a1"}, l.list(), "the next event waits for the end of the first")
		at := l.times()
		for i, least := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
			require.GreaterOrEqual(t, at[i+1].Sub(at[i]), least)
		}
		require.Equal(t, map[string]int64{"failed": 3, "given_up": 1, "delivered": 1}, b.outcomes())
		acked, _ := b.settled()
		require.Equal(t, []string{"first", "second"}, acked)
	})
}

func TestSubscriber_DoesNotRepeatWhatNoRepetitionHelps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{Retries: 3, Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error {
			l.note(ev)
			if ev.N == 1 {
				panic("broken")
			}
			return backoff.Permanent(errors.New("gone"))
		})})
		defer b.stop()
		b.push(t, "refused", step("a", 0))
		b.push(t, "panics", step("a", 1))
		pass(time.Second)
		require.Equal(t, []string{"a0", "a1"}, l.list())
		require.Equal(t, map[string]int64{"given_up": 2}, b.outcomes())
		acked, _ := b.settled()
		require.Equal(t, []string{"refused", "panics"}, acked)
	})
}

func TestSubscriber_WaitsAsLongAsTheObserverAsks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{Retries: 1, Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error {
			l.note(ev)
			if len(l.list()) == 1 {
				return backoff.RetryAfter(90)
			}
			return nil
		})})
		defer b.stop()
		b.push(t, "a", step("a", 0))
		pass(2 * time.Minute)
		at := l.times()
		require.Len(t, at, 2)
		require.Equal(t, 90*time.Second, at[1].Sub(at[0]))
	})
}

func TestSubscriber_EndsATryThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 8)
		b := subscribe(t, hook.Subscription{Timeout: 3 * time.Second, Observer: hook.ObserverFunc(func(ctx context.Context, _ *event.Lifecycle) error {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return context.Cause(ctx)
		})})
		defer b.stop()
		b.push(t, "a", step("a", 0))
		pass(4 * time.Second)
		require.Len(t, causes, 1)
		require.EqualError(t, <-causes, "the hook did not answer in time")
		require.Equal(t, map[string]int64{"given_up": 1}, b.outcomes())
	})
}

func TestSubscriber_BoundsTheTriesThatAreUnderWay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := 0, 0
		change := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			now += by
			most = max(most, now)
		}
		b := subscribe(t, hook.Subscription{Parallel: 3, Observer: hook.ObserverFunc(func(context.Context, *event.Lifecycle) error {
			change(1)
			defer change(-1)
			pass(time.Second)
			return nil
		})})
		defer b.stop()
		for i := range 9 {
			session := fmt.Sprintf("s%d", i)
			b.push(t, session, step(session, 0))
		}
		pass(3500 * time.Millisecond)
		acked, _ := b.settled()
		require.Len(t, acked, 9)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, 3, most)
	})
}

func TestSubscriber_HoldsABoundedNumberAndTakesMoreAsItGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		b := subscribe(t, hook.Subscription{Timeout: time.Hour, Observer: hook.ObserverFunc(func(context.Context, *event.Lifecycle) error {
			<-open
			return nil
		})})
		defer b.stop()
		for n := range 1500 {
			b.push(t, name("a", n), step("a", n))
		}
		pass(time.Minute)
		require.Len(t, b.ready, 1500-1024)
		close(open)
		pass(time.Minute)
		acked, _ := b.settled()
		require.Len(t, acked, 1500)
		require.Equal(t, "a0", acked[0])
		require.Equal(t, "a1499", acked[1499])
	})
}

func TestSubscriber_DeliversAnEventOnceThatComesAgainMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{Timeout: time.Hour, Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error {
			pass(time.Minute)
			l.note(ev)
			return nil
		})})
		defer b.stop()
		b.push(t, "first copy", step("a", 0))
		b.push(t, "next", step("a", 1))
		pass(30 * time.Second)
		b.push(t, "second copy", step("a", 0))
		pass(5 * time.Minute)
		require.Equal(t, []string{"a0", "a1"}, l.list())
		acked, _ := b.settled()
		require.Equal(t, []string{"second copy", "next"}, acked)
	})
}

func TestSubscriber_DropsWhatIsNotWanted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l log
		b := subscribe(t, hook.Subscription{
			Types: []event.Type{event.LLMStarted, event.RunDead}, Tenants: []string{"default"},
			Observer: hook.ObserverFunc(func(_ context.Context, ev *event.Lifecycle) error { l.note(ev); return nil }),
		})
		defer b.stop()
		require.Equal(t, bus.EventQueue("audit", "*"), <-b.opened)
		other, foreign := step("a", 1), step("a", 2)
		other.Type, foreign.Tenant = event.LLMFinished, "acme"
		for i, ev := range []event.Lifecycle{step("a", 0), other, foreign, step("a", 3)} {
			b.push(t, fmt.Sprint(i), ev)
		}
		b.ready <- &delivery{queue: b.queue, name: "not an event", msg: bus.Msg{Data: []byte("\xff")}}
		pass(time.Second)
		require.Equal(t, []string{"a0", "a3"}, l.list())
		acked, _ := b.settled()
		require.ElementsMatch(t, []string{"0", "1", "2", "3", "not an event"}, acked)
	})
}

func TestSubscriber_LetsTheBrokerSelectASingleType(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := subscribe(t, hook.Subscription{Types: []event.Type{event.RunStarted}, Observer: hook.ObserverFunc(nil)})
		defer b.stop()
		require.Equal(t, bus.EventQueue("audit", "run_started"), <-b.opened)
	})
}

func TestSubscriber_StopGivesBackWhatIsInHand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := subscribe(t, hook.Subscription{Observer: hook.ObserverFunc(func(ctx context.Context, _ *event.Lifecycle) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})})
		for n := range 3 {
			b.push(t, name("a", n), step("a", n))
		}
		synctest.Wait()
		b.stop()
		acked, nacked := b.settled()
		require.Empty(t, acked)
		require.Equal(t, []string{"a0", "a1", "a2"}, nacked)
		require.Empty(t, b.outcomes())
	})
}
