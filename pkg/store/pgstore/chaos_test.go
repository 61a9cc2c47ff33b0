package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/pkg/testkit/await"
)

// chaos is a few sessions to which everything happens at once that a message, a worker, a sweeper or an operator can do.
type chaos struct {
	race
	// done counts what took effect, by name.
	done map[string]int
}

func (c *chaos) count(name string, took bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if took {
		c.done[name]++
	}
}

func TestStore_InvariantsHoldWhateverHappensAtOnce(t *testing.T) {
	t.Parallel()
	url := database(t)
	conn := connect(t, url)
	exec(t, conn, recordWrites)
	c := &chaos{
		race: race{store: open(t, url), kept: map[string]bool{}, lost: map[string]bool{}, finished: map[uuid.UUID]int{}},
		done: map[string]int{},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var workers, disturbers sync.WaitGroup
	errs := make(chan error, 20)
	start := func(ctx context.Context, wg *sync.WaitGroup, one func(context.Context) error) {
		wg.Go(func() { errs <- repeat(ctx, one) })
	}
	disturbing, calm := context.WithCancel(ctx)
	working, stop := context.WithCancel(ctx)
	for i := range 3 {
		start(working, &workers, func(ctx context.Context) error { return c.work(ctx, fmt.Sprint("w", i)) })
	}
	for _, one := range []func(context.Context) error{c.wake, c.mark, c.settle, c.endStopped, c.unpause} {
		start(working, &workers, one)
	}
	for _, one := range []func(context.Context) error{c.admit, c.takeOver, c.reclaim, c.giveUp, c.pause} {
		start(disturbing, &disturbers, one)
	}
	await.True(t, 3*time.Minute, func() bool {
		if len(errs) > 0 {
			return true // which fails the test below
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range chaosEvents() {
			if c.done[name] < 3 {
				return false
			}
		}
		return true
	}, "everything has happened")
	calm()
	disturbers.Wait() // what they have begun may be a message
	await.True(t, time.Minute, func() bool {
		return scan[bool](t, conn, `select not exists (select from sessions where state <> 'idle' or out_sent < out_seq)`)
	}, "everything comes to rest")
	stop()
	workers.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	requireInvariants(t, conn)
	require.Zero(t, scan[int](t, conn, `select count(*) from runs where state not in ('done', 'cancelled', 'dead')`))
	require.Equal(t, c.done["give up"], scan[int](t, conn, `select count(*) from dead_letters where kind = 'run'`))
	require.Zero(t, scan[int](t, conn, `select count(*) from sessions where want_seq > done_seq`), "no message waits for ever")
	for run, n := range c.finished {
		require.Equal(t, 1, n, "run %s ended more than once", run)
	}
}

// chaosEvents have all to take place, each more than once, or the test shows nothing.
func chaosEvents() []string {
	return []string{
		"finish", "suspend", "hand over", "checkpoint", "fenced", "wake", "gap", "mark", "end stopped", "take over", "reclaim", "give up",
		"pause", "unpause",
	}
}

// repeat does one again and again until ctx ends. What it has begun it ends: otherwise nobody would know what took effect.
func repeat(ctx context.Context, one func(context.Context) error) error {
	for ctx.Err() == nil {
		if err := one(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, store.ErrFenced) {
			return err
		}
	}
	return nil
}

func chaosChat() string { return fmt.Sprint("chat", rand.IntN(raceSessions)) }

// admit sends a message of any kind to one of the chats.
func (c *chaos) admit(ctx context.Context) error {
	m := message(chaosChat(), uuid.NewString())
	switch rand.IntN(8) {
	case 0:
		m.Kind, m.WantsRun, m.Stop, m.Wakes = store.KindStop, false, true, true
	case 1:
		m.Kind, m.WantsRun, m.Wakes = store.KindApproval, false, true
	case 2:
		m.Interrupt = true
	case 3:
		m.Collect = &store.Collect{Quiet: time.Millisecond, Max: time.Second}
	case 4:
		m.EndsCollect = true
	case 5:
		n := reply()
		m.RejectIfBusy, m.Notice = true, &n
	case 6:
		m.Kind, m.WantsRun, m.Reset = store.KindCommand, false, rand.IntN(4) == 0
	}
	_, err := c.store.Admit(ctx, store.Admission{Messages: []store.AdmitMessage{m}})
	return err
}

// work claims what is queued, stores a step and then ends the run or lets go of it.
func (c *chaos) work(ctx context.Context, id string) error {
	queued, _, err := c.store.QueuedRuns(ctx, allPartitions(), 0, "", raceSessions)
	if err != nil {
		return err
	}
	for _, q := range queued {
		claimed, err := c.store.Claim(ctx, []store.ClaimRequest{
			{Fence: store.Fence{SKey: q.SKey, Gen: q.Gen, RunID: q.RunID, Owner: id + "/" + uuid.NewString()}},
		})
		if err != nil {
			return err
		}
		for _, run := range claimed {
			if err := c.run(ctx, run); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *chaos) run(ctx context.Context, run store.Claimed) error {
	step := checkpoint(run)
	step.Taken, step.Replies[0].DKey = nil, run.RunID.String()+":step"
	steps, err := c.store.Checkpoint(ctx, []store.Checkpoint{step})
	if err != nil {
		return err
	}
	c.count("checkpoint", steps[0].Err == nil)
	c.count("fenced", steps[0].Err != nil)
	switch rand.IntN(5) {
	case 0:
		got, err := c.store.Suspend(ctx, []store.Suspension{{
			Checkpoint: store.Checkpoint{Fence: run.Fence, RunGen: run.FirstGen}, Seen: run.LastSeq, Kind: store.WaitTimer, WakeAt: time.Now(),
		}})
		if err == nil {
			c.count("suspend", got[0].Err == nil)
		}
		return err
	case 1:
		got, err := c.store.Handover(ctx, []store.Checkpoint{{Fence: run.Fence, RunGen: run.FirstGen}})
		if err == nil {
			c.count("hand over", got[0].Err == nil)
		}
		return err
	default:
		return c.finish(ctx, run)
	}
}

// finish answers all rows that the claim has seen. A reply in two, so that there are gaps to settle.
func (c *chaos) finish(ctx context.Context, run store.Claimed) error {
	f := finish(run, run.LastSeq, reply(), reply())
	got, err := c.store.Finish(ctx, []store.Finish{f})
	if err == nil && got[0].Outcome == store.FinishStopped {
		f.State = store.RunCancelled
		got, err = c.store.Finish(ctx, []store.Finish{f})
	}
	if err != nil {
		return err
	}
	c.ended("finish", run.RunID, got[0])
	return nil
}

func (c *chaos) ended(name string, run uuid.UUID, r store.FinishResult) {
	took := r.Outcome == store.Finished
	c.count(name, took)
	c.mu.Lock()
	defer c.mu.Unlock()
	if took {
		c.finished[run]++
	}
}

func (c *chaos) wake(ctx context.Context) error {
	got, err := c.store.WakeDue(ctx, allPartitions(), []uuid.UUID{uuid.New(), uuid.New()})
	c.count("wake", len(got) > 0)
	return err
}

// mark settles any row that is there, so that positions are left behind.
func (c *chaos) mark(ctx context.Context) error {
	s, err := c.session(ctx)
	if err != nil || s.OutSent == s.OutSeq {
		return err
	}
	n := s.OutSent + 1 + rand.Int64N(s.OutSeq-s.OutSent)
	_, err = c.store.MarkDeliveries(ctx, []store.Mark{{SKey: s.SKey, OutSeq: n, State: store.OutSent}})
	c.count("mark", err == nil)
	return err
}

func (c *chaos) settle(ctx context.Context) error {
	got, err := c.store.SettleGaps(ctx, allPartitions(), raceSessions)
	c.count("gap", len(got) > 0)
	return err
}

func (c *chaos) endStopped(ctx context.Context) error {
	stops, err := c.store.StaleStops(ctx, allPartitions(), 0, raceSessions)
	if err != nil {
		return err
	}
	for _, stop := range stops {
		s, err := c.store.Session(ctx, stop.SKey)
		if err != nil {
			return err
		}
		got, err := c.store.EndStopped(ctx, store.QueuedStop{
			SKey: stop.SKey, Gen: stop.Gen, RunID: stop.RunID, From: s.DoneSeq + 1, To: s.LastSeq, Replies: []store.NewReply{reply()},
			NextRunID: uuid.New(),
		})
		if err != nil {
			return err
		}
		c.ended("end stopped", stop.RunID, got)
	}
	return nil
}

func (c *chaos) reclaim(ctx context.Context) error {
	runs, _, err := c.store.RunningRuns(ctx, allPartitions(), "", raceSessions)
	if err != nil {
		return err
	}
	rs := make([]store.Reclaim, len(runs))
	for i, r := range runs {
		rs[i] = store.Reclaim{Fence: store.Fence{SKey: r.SKey, Gen: r.Gen, RunID: r.RunID, Owner: r.Owner}, Fresh: "x/" + uuid.NewString()}
	}
	got, err := c.store.Reclaim(ctx, rs)
	for i := range got {
		c.count("reclaim", got[i].Err == nil)
		if got[i].Err != nil {
			continue
		}
		// Its worker has lost the run.
		_, err := c.store.Takeover(ctx, store.Takeover{SKey: rs[i].SKey, Gen: got[i].Gen, Owner: rs[i].Fresh})
		if err != nil && !errors.Is(err, store.ErrFenced) {
			return err
		}
	}
	return err
}

func (c *chaos) takeOver(ctx context.Context) error {
	runs, _, err := c.store.RunningRuns(ctx, allPartitions(), "", raceSessions)
	if err != nil || len(runs) == 0 {
		return err
	}
	r := runs[rand.IntN(len(runs))]
	_, err = c.store.Takeover(ctx, store.Takeover{SKey: r.SKey, Gen: r.Gen, Owner: r.Owner, StallKey: "call"})
	c.count("take over", err == nil)
	return err
}

func (c *chaos) giveUp(ctx context.Context) error {
	s, err := c.session(ctx)
	if err != nil || s.RunID == uuid.Nil {
		return err
	}
	run, err := c.store.Run(ctx, s.RunID)
	if err != nil {
		return err
	}
	g := giveUp(store.Claimed{
		Fence: store.Fence{SKey: s.SKey, Gen: s.Gen, RunID: s.RunID, Owner: s.Owner}, FirstGen: run.FirstGen, DoneSeq: s.DoneSeq,
	})
	g.To = s.LastSeq
	got, err := c.store.GiveUp(ctx, g)
	if err == nil {
		c.ended("give up", s.RunID, got)
	}
	return err
}

func (c *chaos) pause(ctx context.Context) error {
	_, err := c.store.Pause(ctx, message(chaosChat(), "").SKey)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	c.count("pause", err == nil)
	return err
}

func (c *chaos) unpause(ctx context.Context) error {
	s, err := c.session(ctx)
	if err != nil || s.State != store.Paused {
		return err
	}
	_, err = c.store.Unpause(ctx, s.SKey, uuid.New())
	c.count("unpause", err == nil)
	return err
}

// session reads one of the chats; a chat that nobody has written to yet is a session of zeros.
func (c *chaos) session(ctx context.Context) (store.Session, error) {
	s, err := c.store.Session(ctx, message(chaosChat(), "").SKey)
	if errors.Is(err, store.ErrNotFound) {
		return store.Session{}, nil
	}
	return s, err
}
