package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/hermes-runtime/hermes/pkg/store"
)

func concurrentCases() []testCase {
	return []testCase{
		{"routers, workers and senders on few sessions keep the invariants", systemKeepsInvariants},
	}
}

// system is a small engine on the port alone: routers admit, workers run, senders deliver. Doorbells are channels, and
// each is rung twice, so that every claim has a rival.
type system struct {
	e     *env
	chats []chat
	runs  chan store.Fence
	outs  chan store.Doorbell

	// rows and replies are what has yet to be covered and delivered; the channels end when both are done.
	rows, replies atomic.Int64
	finished      chan struct{}
	once          sync.Once

	mu     sync.Mutex
	owners map[string]string
	sent   map[string][]int64
}

const (
	perChat = 40
	rivals  = 2
)

func systemKeepsInvariants(t *testing.T, e *env) {
	const chats, routers, workers, senders = 4, 4, 5, 3
	s := &system{
		e: e, finished: make(chan struct{}), owners: map[string]string{}, sent: map[string][]int64{},
		runs: make(chan store.Fence, rivals*chats*perChat*2), outs: make(chan store.Doorbell, rivals*chats*perChat*4),
	}
	for _, name := range uids("chat", chats) {
		s.chats = append(s.chats, newChat(name))
	}
	s.rows.Store(chats * perChat)

	g, ctx := errgroup.WithContext(t.Context())
	for i := range routers {
		g.Go(func() error { return s.router(ctx, i) })
	}
	for i := range workers {
		g.Go(func() error { return s.worker(ctx, i) })
	}
	for i := range senders {
		g.Go(func() error { return s.sender(ctx, i) })
	}
	require.NoError(t, g.Wait())
	for _, c := range s.chats {
		s.requireInvariants(t, c)
	}
}

// router admits all messages of all chats, in an order of its own: what another router has admitted is a duplicate.
func (s *system) router(ctx context.Context, n int) error {
	for i := range perChat {
		var batch []store.AdmitMessage
		for j := range s.chats {
			c := s.chats[(j+n)%len(s.chats)]
			batch = append(batch, c.user(uids("m", perChat)[(i+n*7)%perChat]))
		}
		got, err := s.e.Store.Admit(ctx, store.Admission{Messages: append(batch, batch[0])})
		if err != nil {
			return fmt.Errorf("admit: %w", err)
		}
		if !got[len(got)-1].Duplicate {
			return fmt.Errorf("%s was admitted twice in one batch", batch[0].UID)
		}
		for j, a := range got {
			if a.Created {
				s.ringRun(store.Fence{SKey: batch[j].SKey, Gen: a.Gen, RunID: a.RunID})
			}
		}
	}
	return nil
}

func (s *system) ringRun(f store.Fence) {
	for range rivals {
		s.runs <- f
	}
}

func (s *system) ringOut(d store.Doorbell) {
	for range rivals {
		s.outs <- d
	}
}

func (s *system) worker(ctx context.Context, n int) error {
	for nonce := 0; ; nonce++ {
		select {
		case <-ctx.Done():
			return nil
		case <-s.finished:
			return nil
		case f := <-s.runs:
			f.Owner = fmt.Sprintf("worker-%d/%d", n, nonce)
			claimed, err := s.e.Store.Claim(ctx, []store.ClaimRequest{{Fence: f}})
			if err != nil {
				return fmt.Errorf("claim: %w", err)
			}
			if len(claimed) == 0 {
				continue
			}
			if err := s.run(ctx, claimed[0]); err != nil {
				return err
			}
		}
	}
}

// run is one turn: its rows are the oldest one, or the two oldest ones, and it gives one or two answers.
func (s *system) run(ctx context.Context, c store.Claimed) error {
	if err := s.own(c); err != nil {
		return err
	}
	to := c.Inbox[min(1, len(c.Inbox)-1)*int(c.Gen%2)].Seq
	cps, err := s.e.Store.Checkpoint(ctx, []store.Checkpoint{{
		Fence: c.Fence, RunGen: c.FirstGen, Messages: []store.Message{said(1, "user", "q", to)},
	}})
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if cps[0].Err != nil {
		return fmt.Errorf("checkpoint of the owner %s: %w", c.Owner, cps[0].Err)
	}
	f := done(c, to, push("one"))
	f.Messages = []store.Message{said(2, "assistant", "a", 0)}
	if c.Gen%3 == 0 {
		f.Replies = append(f.Replies, push("two"))
	}
	s.replies.Add(int64(len(f.Replies)))
	s.disown(c)
	return s.end(ctx, c, f)
}

// end finishes the run, checks that its worker can do nothing more, and rings.
func (s *system) end(ctx context.Context, c store.Claimed, f store.Finish) error {
	got, err := s.e.Store.Finish(ctx, []store.Finish{f})
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	if got[0].Outcome != store.Finished || !got[0].Known {
		return fmt.Errorf("finish of the owner %s: %+v", c.Owner, got[0])
	}
	for i := range f.Replies {
		s.ringOut(store.Doorbell{SKey: c.SKey, OutSeq: got[0].FirstOut + int64(i)})
	}
	if got[0].RunID != uuid.Nil {
		s.ringRun(store.Fence{SKey: c.SKey, Gen: got[0].Gen, RunID: got[0].RunID})
	}
	late, err := s.e.Store.Checkpoint(ctx, []store.Checkpoint{{Fence: c.Fence, RunGen: c.FirstGen, Messages: []store.Message{said(3, "user", "late", 0)}}})
	if err != nil {
		return fmt.Errorf("late checkpoint: %w", err)
	}
	if late[0].Err == nil {
		return fmt.Errorf("checkpoint after the finish of %s was not fenced", c.Owner)
	}
	s.settle(&s.rows, f.To-f.From+1)
	return nil
}

// own notes that the session has an owner; between a claim and its finish there is no other.
func (s *system) own(c store.Claimed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rival := s.owners[c.SKey]; rival != "" {
		return fmt.Errorf("session is owned by %s and by %s", rival, c.Owner)
	}
	s.owners[c.SKey] = c.Owner
	return nil
}

func (s *system) disown(c store.Claimed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owners, c.SKey)
}

// settle counts down; replies of a run are counted before its rows are.
func (s *system) settle(counter *atomic.Int64, n int64) {
	counter.Add(-n)
	if s.rows.Load() == 0 && s.replies.Load() == 0 {
		s.once.Do(func() { close(s.finished) })
	}
}

func (s *system) sender(ctx context.Context, n int) error {
	for nonce := 0; ; nonce++ {
		select {
		case <-ctx.Done():
			return nil
		case <-s.finished:
			return nil
		case d := <-s.outs:
			from := fmt.Sprintf("egress-%d/%d", n, nonce)
			if err := s.deliver(ctx, from, store.DeliveryClaim{SKey: d.SKey, OutSeq: d.OutSeq}); err != nil {
				return err
			}
		}
	}
}

// deliver claims the row, notes that it was sent, marks it and rings for the row behind it.
func (s *system) deliver(ctx context.Context, from string, claim store.DeliveryClaim) error {
	got, err := s.e.Store.ClaimDeliveries(ctx, from, []store.DeliveryClaim{claim})
	if err != nil {
		return fmt.Errorf("claim delivery: %w", err)
	}
	if len(got) == 0 {
		return nil
	}
	s.mu.Lock()
	s.sent[claim.SKey] = append(s.sent[claim.SKey], claim.OutSeq)
	s.mu.Unlock()
	marked, err := s.e.Store.MarkDeliveries(ctx, []store.Mark{{SKey: claim.SKey, OutSeq: claim.OutSeq, State: store.OutSent}})
	if err != nil {
		return fmt.Errorf("mark: %w", err)
	}
	if len(marked) != 1 || marked[0].OutSent != claim.OutSeq {
		return fmt.Errorf("mark of row %d: %+v", claim.OutSeq, marked)
	}
	if marked[0].OutSeq > marked[0].OutSent {
		s.ringOut(store.Doorbell{SKey: claim.SKey, OutSeq: claim.OutSeq + 1})
	}
	s.settle(&s.replies, 1)
	return nil
}

// requireInvariants checks I1, I2, I5, I6 and I7 of a session at rest.
func (s *system) requireInvariants(t *testing.T, c chat) {
	t.Helper()
	row := s.e.session(t, c)
	require.Equal(t, store.Idle, row.State)
	require.Equal(t, []int64{perChat, perChat, perChat}, []int64{row.LastSeq, row.DoneSeq, row.WantSeq})

	runs := s.requireOneRunEach(t, c)
	from, gen, out := int64(1), int64(0), int64(0)
	dkeys := map[string]bool{}
	for _, r := range runs {
		require.Equal(t, store.RunDone, r.State)
		require.Equal(t, from, r.FromSeq, "ranges tile the inbox")
		require.Greater(t, r.FirstGen, gen, "generations rise")
		from, gen = r.ToSeq+1, r.FirstGen
		for _, reply := range s.e.replies(t, r.ID) {
			require.Equal(t, out+1, reply.OutSeq, "out_seq has no gaps")
			require.False(t, dkeys[reply.DKey], "a dkey is used once")
			require.Equal(t, store.OutSent, reply.State)
			out, dkeys[reply.DKey] = reply.OutSeq, true
		}
	}
	require.Equal(t, int64(perChat+1), from)
	require.Equal(t, []int64{out, out}, []int64{row.OutSeq, row.OutSent})
	require.Len(t, s.sent[c.skey], int(out), "each row was sent once")
	require.True(t, slices.IsSorted(s.sent[c.skey]), "and in order")
	require.Len(t, s.e.history(t, c, 10*perChat), 2*len(runs))
}

// requireOneRunEach checks that every message has a number and a run of its own, and returns the runs in their order.
func (s *system) requireOneRunEach(t *testing.T, c chat) []store.Run {
	t.Helper()
	seqs, runs := map[int64]bool{}, map[uuid.UUID]store.Run{}
	for _, uid := range uids("m", perChat) {
		sub := s.e.submission(t, c, uid)
		require.Equal(t, uid, textOf(t, sub.Body))
		require.False(t, seqs[sub.Seq], "a number is used once")
		require.True(t, sub.Run.FromSeq <= sub.Seq && sub.Seq <= sub.Run.ToSeq)
		seqs[sub.Seq], runs[sub.Run.ID] = true, sub.Run
	}
	require.True(t, seqs[1] && seqs[perChat], "numbers are 1 to %d", perChat)
	out := make([]store.Run, 0, len(runs))
	for _, r := range runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b store.Run) int { return int(a.FromSeq - b.FromSeq) })
	return out
}
