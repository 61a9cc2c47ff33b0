package memstore

import (
	"container/heap"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Times of the outbox, as in the statements of the product.
const (
	firstRing = 3 * time.Second
	nextRing  = 90 * time.Second
	claimTTL  = 60 * time.Second
)

// outRow is an outbox row. sender and until say who sends it now; until stays when the claim ends.
type outRow struct {
	store.Delivery
	state  store.OutState
	nextAt time.Time
	sender string
	until  time.Time
	// place is the index in the heap of due rows while the row is pending.
	place int
}

// dueAt is when the sweeper may ring: the row is due and nobody sends it.
func (o *outRow) dueAt() time.Time {
	if o.until.After(o.nextAt) {
		return o.until
	}
	return o.nextAt
}

// mine reports whether sender holds the claim.
func (o *outRow) mine(sender string) bool {
	return o != nil && o.state == store.OutPending && o.sender != "" && o.sender == sender
}

// dueHeap holds the pending rows, the one that is due first on top.
type dueHeap []*outRow

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueAt().Before(h[j].dueAt()) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	o := x.(*outRow) // container/heap pushes what reply gave it
	o.place = len(*h)
	*h = append(*h, o)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}

func (c *checker) reply(n *store.NewReply) {
	c.text("reply", n.DKey, n.Platform)
	c.json("reply target", n.Target)
	c.json("reply parts", n.Parts)
}

func replyDKey(runID uuid.UUID, i int, n *store.NewReply) string {
	if n.DKey != "" {
		return n.DKey
	}
	return runID.String() + ":" + strconv.Itoa(i+1)
}

func (s *Store) hasDKey(skey, dkey string) bool {
	r := s.sessions[skey]
	if r == nil {
		return false
	}
	_, ok := r.dkeys[dkey]
	return ok
}

// reply appends outbox rows of a run, or of none for a notice, and returns the first out_seq, 0 if there are no rows.
// Rows that are read are born sent; if all are and nothing waits before them, the settled position moves with them, or a
// row behind them would never be the next one.
func (s *Store) reply(r *sessionRow, run *runRow, replies []store.NewReply, traceparent string, now time.Time) int64 {
	if len(replies) == 0 {
		return 0
	}
	before, settled := r.OutSeq, r.OutSent == r.OutSeq
	for i := range replies {
		n := &replies[i]
		r.OutSeq++
		o := &outRow{
			Delivery: store.Delivery{
				SKey: r.SKey, OutSeq: r.OutSeq, Tenant: r.Tenant, DKey: n.DKey, Platform: n.Platform,
				Target: cloneJSON(n.Target), Parts: cloneJSON(n.Parts), CreatedAt: now, Traceparent: traceparent,
			},
			state: store.OutSent, nextAt: now.Add(firstRing),
		}
		if run != nil {
			o.RunID, o.DKey = run.ID, replyDKey(run.ID, i, n)
			run.replies = append(run.replies, o)
		}
		r.outbox = append(r.outbox, o)
		r.dkeys[o.DKey] = struct{}{}
		if !n.Read {
			settled, o.state = false, store.OutPending
			heap.Push(&s.due, o)
		}
	}
	if settled {
		r.OutSent = r.OutSeq
	}
	s.noteGap(r)
	return before + 1
}

// ClaimDeliveries implements store.Outbox.
func (s *Store) ClaimDeliveries(ctx context.Context, sender string, claims []store.DeliveryClaim) ([]store.Delivery, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", err)
	}
	var c checker
	c.text("sender", sender)
	if c.err != nil {
		return nil, fmt.Errorf("claim deliveries: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	var out []store.Delivery
	for _, cl := range claims {
		r := s.sessions[cl.SKey]
		o := r.out(cl.OutSeq)
		if o == nil || o.state != store.OutPending || o.until.After(now) || cl.OutSeq-1 != max(r.OutSent, cl.Sent) {
			continue
		}
		if !o.until.IsZero() {
			o.Maybe++ // an earlier claim ended by itself: its attempt may have reached the platform
		}
		o.Attempts++
		o.sender, o.until = sender, now.Add(claimTTL)
		heap.Fix(&s.due, o.place)
		out = append(out, o.Delivery)
	}
	return out, nil
}

// RecordPart implements store.Outbox.
func (s *Store) RecordPart(ctx context.Context, p store.PartSent) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("record part: %w", err)
	}
	var c checker
	c.text("sender", p.SKey, p.Sender)
	c.json("platform ids", p.PlatformIDs)
	c.json("plan", p.Plan)
	if c.err != nil {
		return fmt.Errorf("record part: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sessions[p.SKey].out(p.OutSeq)
	if !o.mine(p.Sender) {
		return fmt.Errorf("record part: %w", store.ErrFenced)
	}
	o.SentParts, o.PlatformIDs = p.SentParts, cloneJSON(p.PlatformIDs)
	if o.Plan == nil {
		o.Plan = cloneJSON(p.Plan)
	}
	o.until = s.tick().Add(claimTTL)
	heap.Fix(&s.due, o.place)
	return nil
}

// RetryDelivery implements store.Outbox.
func (s *Store) RetryDelivery(
	ctx context.Context, skey string, outSeq int64, sender string, after time.Duration, maybe bool,
) error {
	if err := alive(ctx); err != nil {
		return fmt.Errorf("retry delivery: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.sessions[skey].out(outSeq)
	if !o.mine(sender) {
		return fmt.Errorf("retry delivery: %w", store.ErrFenced)
	}
	o.sender, o.until, o.nextAt = "", time.Time{}, s.tick().Add(after)
	if maybe {
		o.Maybe++
	}
	heap.Fix(&s.due, o.place)
	return nil
}

// settledRange is what one call settles of one session.
type settledRange struct {
	low, high, rows int64
}

// MarkDeliveries implements store.Outbox.
func (s *Store) MarkDeliveries(ctx context.Context, marks []store.Mark) ([]store.Marked, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("mark deliveries: %w", err)
	}
	var c checker
	parts := make([]int, len(marks))
	for i, m := range marks {
		parts[i] = c.array("platform ids", m.PlatformIDs)
		c.text("mark", m.Reason)
		if m.State == store.OutDead && m.LetterID == uuid.Nil {
			c.reject("mark", "no id for the dead letter")
		}
	}
	if c.err != nil {
		return nil, fmt.Errorf("mark deliveries: %w", c.err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.tick()
	settled := map[string]settledRange{}
	var order []string
	for i, m := range marks {
		if !s.settle(m, parts[i], now) {
			continue
		}
		g, seen := settled[m.SKey]
		if !seen {
			g.low = m.OutSeq
			order = append(order, m.SKey)
		}
		settled[m.SKey] = settledRange{low: min(g.low, m.OutSeq), high: max(g.high, m.OutSeq), rows: g.rows + 1}
	}
	return s.advance(order, settled), nil
}

// settle gives a pending row its final state, whoever claimed it.
func (s *Store) settle(m store.Mark, parts int, now time.Time) bool {
	o := s.sessions[m.SKey].out(m.OutSeq)
	if o == nil || o.state != store.OutPending {
		return false
	}
	heap.Remove(&s.due, o.place)
	o.state, o.sender, o.until = m.State, "", time.Time{}
	o.PlatformIDs, o.SentParts = cloneJSON(m.PlatformIDs), max(o.SentParts, parts)
	if m.State == store.OutDead {
		s.bury(o.letter(m), now)
	}
	return true
}

// advance moves out_sent of the sessions whose settled rows follow it without a gap.
func (s *Store) advance(skeys []string, settled map[string]settledRange) []store.Marked {
	var out []store.Marked
	for _, skey := range skeys {
		r, g := s.sessions[skey], settled[skey]
		if r.OutSent == g.low-1 && g.high-g.low+1 == g.rows {
			r.OutSent = g.high
			out = append(out, store.Marked{SKey: skey, OutSeq: r.OutSeq, OutSent: r.OutSent})
		}
		s.noteGap(r)
	}
	return out
}

// noteGap remembers a session in which the row behind the settled position is settled as well.
func (s *Store) noteGap(r *sessionRow) {
	if o := r.out(r.OutSent + 1); o != nil && o.state != store.OutPending {
		s.gaps[r] = struct{}{}
	}
}

// SettleGaps implements store.Recovery.
func (s *Store) SettleGaps(ctx context.Context, partitions []int, limit int) ([]store.Doorbell, error) {
	if err := alive(ctx); err != nil {
		return nil, fmt.Errorf("settle gaps: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := distinct(partitions)
	var out []store.Doorbell
	for r := range s.gaps {
		if limit <= 0 {
			break
		}
		if !slices.Contains(own, r.Partition) {
			continue
		}
		limit--
		delete(s.gaps, r)
		next := r.out(r.OutSent + 1)
		for ; next != nil && next.state != store.OutPending; next = r.out(r.OutSent + 1) {
			r.OutSent++
		}
		if next != nil {
			out = append(out, next.doorbell())
		}
	}
	return out, nil
}

func (o *outRow) doorbell() store.Doorbell {
	return store.Doorbell{SKey: o.SKey, OutSeq: o.OutSeq, Platform: o.Platform, Attempts: o.Attempts}
}
