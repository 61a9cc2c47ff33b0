package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

func sweepCases() []testCase {
	return []testCase{
		{"queued runs that are old enough are found", queuedAge},
		{"only queued runs of the partitions are found", queuedFilter},
		{"queued runs are oldest first and pages go on where the last ended", queuedPages},
		{"next run counts its age from the finish", queuedNextAge},
		{"pending rows are due after 3 s and then every 90 s", dueTimes},
		{"row that is being sent is not due", dueClaimed},
		{"row that was put off is due after that time", duePutOff},
		{"settled rows are never due", dueSettled},
		{"due deliveries keep to the limit", dueLimit},
		{"backlog counts running and queued sessions of the partitions", backlog},
	}
}

func allPartitions() []int {
	p := make([]int, session.Partitions)
	for i := range p {
		p[i] = i
	}
	return p
}

func (e *env) queued(t tb, partitions []int, age time.Duration) []store.QueuedRun {
	t.Helper()
	runs, next, err := e.Store.QueuedRuns(t.Context(), partitions, age, "", 1000)
	require.NoError(t, err)
	require.Empty(t, next)
	return runs
}

func queuedAge(t *testing.T, e *env) {
	c := newChat("a")
	a := e.admitOne(t, c.user("m1"))
	e.Advance(t, 10*time.Second)
	e.admitOne(t, newChat("b").user("m1"))

	got := e.queued(t, allPartitions(), 5*time.Second)
	require.Len(t, got, 1, "the other is too young")
	require.GreaterOrEqual(t, got[0].Age, 10*time.Second)
	require.Less(t, got[0].Age, time.Minute)
	got[0].Age = 0
	require.Equal(t, store.QueuedRun{SKey: c.skey, Tenant: tenant, Gen: a.Gen, RunID: a.RunID, RunClass: runClass}, got[0])

	e.Advance(t, 10*time.Second)
	require.Len(t, e.queued(t, allPartitions(), 5*time.Second), 2)
	require.Empty(t, e.queued(t, allPartitions(), time.Hour))
}

func queuedFilter(t *testing.T, e *env) {
	running, idle, queued := newChat("running"), newChat("idle"), newChat("queued")
	e.start(t, running, "m1")
	e.answer(t, idle, "m1")
	e.admitOne(t, queued.user("m1"))
	e.Advance(t, 10*time.Second)
	got := e.queued(t, allPartitions(), time.Second)
	require.Len(t, got, 1)
	require.Equal(t, queued.skey, got[0].SKey)

	mine := session.Partition(queued.skey)
	require.Len(t, e.queued(t, []int{mine}, time.Second), 1)
	others := slices.DeleteFunc(allPartitions(), func(p int) bool { return p == mine })
	require.Empty(t, e.queued(t, others, time.Second))
	require.Empty(t, e.queued(t, nil, time.Second))
}

// inPartition returns n chats of the partition of the first of them.
func inPartition(n int) []chat {
	chats := []chat{newChat("first")}
	p := session.Partition(chats[0].skey)
	for i := 0; len(chats) < n; i++ {
		if c := newChat(fmt.Sprint("more", i)); session.Partition(c.skey) == p {
			chats = append(chats, c)
		}
	}
	return chats
}

func queuedPages(t *testing.T, e *env) {
	const same, spread = 7, 20
	old := inPartition(same)
	for _, c := range old {
		e.admitOne(t, c.user("m1"))
		e.Advance(t, time.Second)
	}
	for _, name := range uids("chat", spread) {
		e.admitOne(t, newChat(name).user("m1"))
	}
	e.Advance(t, 5*time.Second)

	var got []store.QueuedRun
	after, pages := "", 0
	for {
		page, next, err := e.Store.QueuedRuns(t.Context(), allPartitions(), time.Second, after, 4)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 4)
		got, after, pages = append(got, page...), next, pages+1
		require.Less(t, pages, same+spread, "pages come to an end")
		if next == "" {
			break
		}
	}
	require.Len(t, got, same+spread)
	seen := map[string]bool{}
	var order []string
	for _, q := range got {
		require.False(t, seen[q.SKey], "no run is returned twice")
		seen[q.SKey] = true
		if i := slices.IndexFunc(old, func(c chat) bool { return c.skey == q.SKey }); i >= 0 {
			order = append(order, q.SKey)
		}
	}
	want := make([]string, same)
	for i, c := range old {
		want[i] = c.skey
	}
	require.Equal(t, want, order)
}

func queuedNextAge(t *testing.T, e *env) {
	c := newChat("a")
	run := e.start(t, c, "m1")
	e.admitOne(t, c.user("m2"))
	e.Advance(t, time.Hour)
	next := e.finish(t, done(run, 1))
	require.Empty(t, e.queued(t, allPartitions(), time.Minute))
	e.Advance(t, 2*time.Minute)
	got := e.queued(t, allPartitions(), time.Minute)
	require.Len(t, got, 1)
	require.Equal(t, next.RunID, got[0].RunID)
	require.Equal(t, next.Gen, got[0].Gen)
}

func (e *env) due(t tb, limit int) []store.Doorbell {
	t.Helper()
	got, err := e.Store.DueDeliveries(t.Context(), limit)
	require.NoError(t, err)
	return got
}

func bell(c chat, seq int64, attempts int) store.Doorbell {
	return store.Doorbell{SKey: c.skey, OutSeq: seq, Platform: "telegram", Attempts: attempts}
}

func dueTimes(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	require.Empty(t, e.due(t, 10), "its own doorbell comes first")
	e.Advance(t, 4*time.Second)
	require.Equal(t, []store.Doorbell{bell(c, 1, 0)}, e.due(t, 10))
	require.Empty(t, e.due(t, 10), "it was rung just now")
	e.Advance(t, 60*time.Second)
	require.Empty(t, e.due(t, 10))
	e.Advance(t, 31*time.Second)
	require.Equal(t, []store.Doorbell{bell(c, 1, 0)}, e.due(t, 10))

	d := newChat("b")
	e.admitOne(t, d.command("m1"))
	e.Advance(t, 4*time.Second)
	require.Equal(t, []store.Doorbell{bell(d, 1, 0)}, e.due(t, 10), "a notice too")
}

func dueClaimed(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	e.Advance(t, 10*time.Second)
	require.Empty(t, e.due(t, 10))
	e.Advance(t, claimTTL)
	require.Equal(t, []store.Doorbell{bell(c, 1, 1)}, e.due(t, 10), "the claim has ended")
	d := e.requireDeliverable(t, "egress-2/a", c.out(1), true, "rung")
	require.Equal(t, 1, d.Maybe, "ringing counts nothing, the claim does")
}

func duePutOff(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 1)
	e.requireDeliverable(t, sender, c.out(1), true, "first claim")
	require.NoError(t, e.Store.RetryDelivery(t.Context(), c.skey, 1, sender, 20*time.Second, false))
	e.Advance(t, 10*time.Second)
	require.Empty(t, e.due(t, 10))
	e.Advance(t, 11*time.Second)
	require.Equal(t, []store.Doorbell{bell(c, 1, 1)}, e.due(t, 10))
}

func dueSettled(t *testing.T, e *env) {
	c := e.outgoing(t, "a", 2)
	e.answer(t, newChat("b"), "m1", readable("read"))
	e.mark(t, sent(c, 1))
	e.Advance(t, time.Hour)
	require.Equal(t, []store.Doorbell{bell(c, 2, 0)}, e.due(t, 10))
	e.mark(t, sent(c, 2))
	e.Advance(t, time.Hour)
	require.Empty(t, e.due(t, 10))
}

func dueLimit(t *testing.T, e *env) {
	const n = 10
	var want []store.Doorbell
	for _, name := range uids("chat", n) {
		want = append(want, bell(e.outgoing(t, name, 1), 1, 0))
	}
	e.Advance(t, 4*time.Second)
	var got []store.Doorbell
	for _, size := range []int{4, 4, 2, 0} {
		page := e.due(t, 4)
		require.Len(t, page, size)
		got = append(got, page...)
	}
	require.ElementsMatch(t, want, got)
}

func backlog(t *testing.T, e *env) {
	count := func(partitions []int) [2]int {
		running, queued, err := e.Store.Backlog(t.Context(), partitions)
		require.NoError(t, err)
		return [2]int{running, queued}
	}
	require.Equal(t, [2]int{0, 0}, count(allPartitions()))
	chats := inPartition(4)
	run := e.start(t, chats[0], "m1")
	e.start(t, chats[1], "m1")
	e.admit(t, chats[2].user("m1"), chats[3].user("m1"))
	e.admitOne(t, chats[0].user("m2"))
	require.Equal(t, [2]int{2, 2}, count(allPartitions()))

	mine := session.Partition(chats[0].skey)
	require.Equal(t, [2]int{2, 2}, count([]int{mine}))
	require.Equal(t, [2]int{0, 0}, count([]int{(mine + 1) % session.Partitions}))

	e.finish(t, done(run, 1))
	require.Equal(t, [2]int{1, 3}, count(allPartitions()), "the next run is queued")
	e.finish(t, done(e.claim(t, chats[0], worker), 2))
	require.Equal(t, [2]int{1, 2}, count(allPartitions()))
}
