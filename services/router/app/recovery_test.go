package app

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/llm"
	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/store/pgstore"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
	"github.com/hermes-runtime/hermes/pkg/testkit/pgserver"
	"github.com/hermes-runtime/hermes/pkg/tool"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
	runv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/run/v1"
	"github.com/hermes-runtime/hermes/services/internal/backends"
	"github.com/hermes-runtime/hermes/services/internal/timer"
)

// workerLost is longer than a worker may be silent.
const workerLost = 16 * time.Second

// fetchRun takes the doorbell of a run, whatever others come before it.
func (c *cluster) fetchRun(t *testing.T, id uuid.UUID, gen int64) {
	t.Helper()
	await.True(t, patience, func() bool {
		var run runv1.Dispatch
		require.NoError(t, proto.Unmarshal(c.fetch(t, bus.RunQueue("default")).Data, &run))
		return run.GetRunId() == id.String() && run.GetGen() == gen
	})
}

func TestRTR09_ARunWhoseWorkerIsGoneIsTakenOverByAnotherRouter(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	m := message("webhook", "chat", "1")
	c.publish(t, m)
	run := c.claimAlone(t, m.SKey, "w/1")
	c.fetchRun(t, run.RunID, run.Gen)
	c.step(workerLost)

	s := c.awaitState(t, m.SKey, store.Queued)
	require.Equal(t, []any{run.RunID, run.Gen + 1, 1}, []any{s.RunID, s.Gen, s.Attempt})
	c.fetchRun(t, run.RunID, run.Gen+1)
	require.Equal(t, store.FinishFenced, c.finish(t, run, store.RunDone).Outcome, "the old worker can write nothing more")
	next := c.claim(t, m.SKey, "w/2")
	require.Equal(t, store.Finished, c.finish(t, next, store.RunDone).Outcome)
}

// begin stores a step of one unsafe call, whose intent stays open.
func (c *cluster) begin(t *testing.T, r store.Claimed) {
	t.Helper()
	content, err := json.Marshal(llm.Message{
		Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "call", Name: "explode", Arguments: `{"now":true}`}},
	})
	require.NoError(t, err)
	got, err := c.store.Checkpoint(t.Context(), []store.Checkpoint{{
		Fence: r.Fence, RunGen: r.FirstGen,
		Messages:  []store.Message{{RunGen: r.FirstGen, N: 1, RunID: r.RunID, Role: string(llm.Assistant), Content: content}},
		ToolCalls: []store.ToolCall{{CallID: "call", Name: "explode", Effect: string(tool.Unsafe), State: store.ToolIntent}},
	}})
	require.NoError(t, err)
	require.NoError(t, got[0].Err)
}

func TestRouter_GivesUpARunThatKillsThreeWorkersAndGoesOnWithTheNextMessage(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	killer, next := message("webhook", "chat", "1"), message("webhook", "chat", "2")
	c.publish(t, killer)
	c.publish(t, next)
	c.admission(t, next)
	var run store.Claimed
	for i := range 3 {
		run = c.claimAlone(t, killer.SKey, fmt.Sprintf("w%d/1", i))
		require.Equal(t, i+1, run.Attempts)
		if i == 0 {
			c.begin(t, run)
		}
		c.step(workerLost)
	}
	await.True(t, patience, func() bool { return len(c.store.Letters()) == 1 })

	letter := c.store.Letters()[0]
	require.Equal(t, []string{store.DeadKindRun, run.RunID.String()}, []string{letter.Kind, letter.Ref})
	var dead store.DeadRun
	require.NoError(t, json.Unmarshal(letter.Payload, &dead))
	require.Len(t, dead.Rows, 1)
	require.Contains(t, string(dead.Rows[0]), killer.UID)
	told := c.fetch(t, bus.Queue{Stream: bus.StreamDeadLetter, Durable: "test", Filter: "dlq.run.*", AckWait: patience, MaxAckPending: 10})
	require.Equal(t, "dlq.run.default", told.Subject)
	require.Contains(t, string(told.Data), letter.ID.String())

	got, err := c.store.Run(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunDead, got.State)
	apologies := c.replies(t, run.RunID)
	require.Len(t, apologies, 1)
	require.Contains(t, apologies[0], "Sorry")
	var bell deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.OutQueue("webhook")).Data, &bell))
	require.True(t, proto.Equal(&deliveryv1.Doorbell{Skey: killer.SKey, OutSeq: 1}, &bell))

	after := c.claim(t, killer.SKey, "w/2")
	require.EqualValues(t, 2, after.Inbox[0].Seq)
	require.Equal(t, store.Finished, c.finish(t, after, store.RunDone).Outcome)
}

func TestRouter_EndsAStopThatNobodyActsOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	m, stop := message("webhook", "chat", "1"), slash("webhook", "chat", "2", "stop", "")
	c.publish(t, m)
	run := c.claim(t, m.SKey, "deaf/1") // it holds its lease, and hears nothing
	c.publish(t, stop)
	c.admission(t, stop)
	c.step(11 * time.Second)

	c.awaitState(t, m.SKey, store.Idle)
	got, err := c.store.Run(t.Context(), run.RunID)
	require.NoError(t, err)
	require.Equal(t, store.RunCancelled, got.State)
	require.Equal(t, []string{"Stopped."}, c.replies(t, run.RunID))
	var bell deliveryv1.Doorbell
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.OutQueue("webhook")).Data, &bell))
	require.Equal(t, m.SKey, bell.GetSkey())
	require.Equal(t, store.FinishFenced, c.finish(t, run, store.RunDone).Outcome)
}

func TestRouter_StepsOverAGapAndRingsTheRowBehindIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	var skey string
	for n := range 3 {
		help := slash("webhook", "chat", fmt.Sprint(n), "help", "")
		c.publish(t, help)
		c.admission(t, help)
		skey = help.SKey
	}
	for range 3 {
		c.fetch(t, bus.OutQueue("webhook")) // egress takes the doorbells, and drops that of row 3: it is not next
	}
	for _, n := range []int64{2, 1} {
		_, err := c.store.MarkDeliveries(t.Context(), []store.Mark{{SKey: skey, OutSeq: n, State: store.OutSent}})
		require.NoError(t, err)
	}
	await.True(t, patience, func() bool {
		s, err := c.store.Session(t.Context(), skey)
		require.NoError(t, err)
		return s.OutSent == 2
	})
	await.True(t, patience, func() bool {
		var bell deliveryv1.Doorbell
		require.NoError(t, proto.Unmarshal(c.fetch(t, bus.OutQueue("webhook")).Data, &bell))
		return bell.GetSkey() == skey && bell.GetOutSeq() == 3
	})
}

func TestRouters_FireADueTimerOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.redis.Close() // every router takes all partitions
	c.router(t, "a", nil)
	c.router(t, "b", nil)
	m := message(event.PlatformAPI, "chat", "")
	now := time.Now().Truncate(time.Second)
	hourly, err := timer.New("hourly", "0 * * * *", now.Add(-3*time.Hour), m, now)
	require.NoError(t, err)
	once, err := timer.New("once", timer.Once, now.Add(-time.Hour), m, now)
	require.NoError(t, err)
	for _, tm := range []store.Timer{hourly, once} {
		require.NoError(t, c.store.PutTimer(t.Context(), tm))
	}
	for _, tm := range []store.Timer{hourly, once} {
		_, uid, err := timer.Message(tm, now)
		require.NoError(t, err)
		fired := *m
		fired.UID = uid
		require.Equal(t, store.KindUser, c.admission(t, &fired).Kind)
	}
	await.True(t, patience, func() bool {
		left, err := c.store.Timers(t.Context(), m.SKey)
		require.NoError(t, err)
		return len(left) == 1 && left[0].ID == "hourly" && left[0].NextAt.After(now)
	})
	probe := message(event.PlatformAPI, "chat", "probe")
	c.publish(t, probe) // admitted behind whatever the timers have sent
	require.EqualValues(t, 3, c.admission(t, probe).Seq)
}

func TestRouter_GivesEveryTenantItsTurnAndNoneMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	const queued = 50
	c := newCluster(t)
	c.configure = func(cfg *config.Config) { cfg.Tenants["greedy"] = config.Tenant{MaxRunning: 1} }
	for n := range queued {
		m := message("webhook", fmt.Sprint("chat ", n), "1")
		m.Tenant, m.SKey = "greedy", session.SKey("greedy", m.SessionKey)
		c.publish(t, m)
	}
	polite := message("webhook", "chat", "1")
	c.publish(t, polite)
	c.router(t, "a", nil)

	// Nothing of the greedy tenant ends before the polite one is served.
	var held []store.Claimed
	for served := false; !served; {
		run, ok := c.fetchAndClaim(t)
		switch {
		case !ok: // rung again
		case run.SKey == polite.SKey:
			served = true
		default:
			held = append(held, run)
		}
	}
	require.LessOrEqual(t, len(held), 1, "one run may go on")
	for range 3 {
		for len(held) == 0 {
			if run, ok := c.fetchAndClaim(t); ok {
				held = append(held, run)
			}
		}
		running, err := c.store.RunningByTenant(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, running["greedy"])
		require.Equal(t, store.Finished, c.finish(t, held[0], store.RunDone).Outcome)
		held = nil
	}
}

// fetchAndClaim takes the next run that is rung; not ok if somebody has had it.
func (c *cluster) fetchAndClaim(t *testing.T) (run store.Claimed, ok bool) {
	t.Helper()
	var bell runv1.Dispatch
	require.NoError(t, proto.Unmarshal(c.fetch(t, bus.RunQueue("default")).Data, &bell))
	claimed, err := c.store.Claim(t.Context(), []store.ClaimRequest{{Fence: store.Fence{
		SKey: bell.GetSkey(), Gen: bell.GetGen(), RunID: uuid.MustParse(bell.GetRunId()), Owner: "w/1",
	}}})
	require.NoError(t, err)
	if len(claimed) == 0 {
		return store.Claimed{}, false
	}
	c.hold(t, claimed[0])
	return claimed[0], true
}

func TestRouter_AClockThatStepsLosesAndReordersNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.router(t, "a", nil)
	for i, step := range []time.Duration{0, 24 * time.Hour, -48 * time.Hour, time.Hour} {
		c.step(step)
		for s := range 5 {
			c.publish(t, message("webhook", fmt.Sprint("chat", s), fmt.Sprint(i)))
		}
		c.requireAdmitted(t)
	}
	m := message("webhook", "chat0", "0")
	for i := range 4 {
		run := c.claim(t, m.SKey, fmt.Sprintf("w/%d", i))
		require.EqualValues(t, i+1, run.Inbox[0].Seq)
		require.Equal(t, store.Finished, c.finish(t, run, store.RunDone).Outcome)
	}
}

// postgres opens a store on a fresh database.
func postgres(t *testing.T) (s *pgstore.Store, url string) {
	t.Helper()
	server := pgserver.Shared(t)
	url = server.NewDatabase(t, server.Template(t, "migrated", func(ctx context.Context, url string) error {
		return pgstore.Migrate(ctx, pgstore.Config{URL: url})
	}))
	s, err := pgstore.Open(t.Context(), pgstore.Config{URL: url, Connections: 4})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, url
}

func TestRouter_EndsADatabaseSessionThatFrozeWithARowInItsHands(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	db, url := postgres(t)
	c.router(t, "a", func(b *backends.Backends) { b.Store = db })
	first, second := message("webhook", "chat", "1"), message("webhook", "chat", "2")
	admitted := func(m *event.Message) {
		await.NoError(t, patience, func() error {
			_, err := db.Submission(t.Context(), m.SKey, m.UID)
			return err
		})
	}
	c.publish(t, first)
	admitted(first)

	frozen, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = frozen.Close(context.WithoutCancel(t.Context())) }) // the server has ended it
	p := frozen.PgConn().StartPipeline(t.Context())
	p.SendQueryParams(`update sessions set touched_at = now()`, nil, nil, nil, nil)
	p.SendFlushRequest() // and never the sync that would end the transaction
	require.NoError(t, p.Flush())
	results, err := p.GetResults()
	require.NoError(t, err)
	_, err = results.(*pgconn.ResultReader).Close()
	require.NoError(t, err)
	observer, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, observer.Close(context.WithoutCancel(t.Context()))) })
	lives := func() (yes bool) {
		require.NoError(t, observer.QueryRow(t.Context(), `select exists (select from pg_stat_activity where pid = $1)`,
			frozen.PgConn().PID()).Scan(&yes))
		return yes
	}
	require.True(t, lives())

	c.publish(t, second)
	admitted(second)
	await.True(t, patience, func() bool { return !lives() })
}
