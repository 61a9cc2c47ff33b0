package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	deliveryv1 "github.com/hermes-runtime/hermes/proto/gen/go/hermes/delivery/v1"
)

const (
	batchSize = 256
	fetchWait = 5 * time.Second
	// claimPatience is how long doorbells are held while the store does not answer; then the broker rings again.
	claimPatience = 30 * time.Second
	storeTimeout  = 5 * time.Second
	outagePause   = time.Second
)

// row names an outbox row.
type row struct {
	skey   string
	outSeq int64
}

// job is a row in hand.
type job struct {
	store.Delivery
	lane   *lane
	sender string
	// held is the moment before the call that claimed or extended the claim: sends are timed from it.
	held time.Time
	// target is where the row goes now.
	target event.Address
	ids    []string
	// bell is acknowledged when the row is settled, put off or dropped; nil if none rang.
	bell bus.Work
}

func (j *job) row() row { return row{j.SKey, j.OutSeq} }

// fetch takes doorbells as long as there are free slots. What it has fetched when ctx ends is still answered.
func (d *Deliverer) fetch(ctx context.Context, l *lane, w bus.Worker) {
	down := false
	for {
		n := l.take(ctx, batchSize)
		if n == 0 {
			return
		}
		bells, err := w.Fetch(ctx, n, fetchWait)
		if err != nil && !down && ctx.Err() == nil {
			d.deps.Logger.WarnContext(ctx, "doorbells not fetched", "err", err)
		}
		down = err != nil
		l.give(n - d.answer(d.work, l, bells)) //nolint:contextcheck // what was fetched is answered when ctx has ended as well
		if down {
			daemon.Sleep(ctx, outagePause)
		}
	}
}

// take waits for one free slot and takes up to limit.
func (l *lane) take(ctx context.Context, limit int) int {
	select {
	case <-l.slots:
	case <-ctx.Done():
		return 0
	}
	for n := 1; n < limit; n++ {
		select {
		case <-l.slots:
		default:
			return n
		}
	}
	return limit
}

func (l *lane) give(n int) {
	for range n {
		l.slots <- struct{}{}
	}
}

// answer claims the rows that bells point at and starts their deliveries, one slot each. It returns how many.
func (d *Deliverer) answer(ctx context.Context, l *lane, bells []bus.Work) int {
	byRow := map[row]bus.Work{}
	var rows []row
	for _, b := range bells {
		r, err := readBell(b.Msg())
		if err != nil {
			d.deps.Logger.ErrorContext(ctx, "doorbell not readable", "err", err)
			d.ack(ctx, b)
			continue
		}
		if byRow[r] != nil {
			d.ack(ctx, b)
			continue
		}
		byRow[r] = b
		rows = append(rows, r)
	}
	jobs, err := d.claim(ctx, rows)
	if err != nil {
		d.deps.Logger.WarnContext(ctx, "deliveries not claimed", "err", err)
		return 0 // the broker rings again
	}
	for _, j := range jobs {
		j.lane, j.bell = l, byRow[j.row()]
		delete(byRow, j.row())
		d.start(j)
	}
	for _, b := range byRow { // not next, settled, or somebody is sending it
		d.ack(ctx, b)
	}
	return len(jobs)
}

func readBell(m bus.Msg) (row, error) {
	var b deliveryv1.Doorbell
	if err := proto.Unmarshal(m.Data, &b); err != nil {
		return row{}, fmt.Errorf("decode doorbell: %w", err)
	}
	return row{b.GetSkey(), b.GetOutSeq()}, nil
}

// claim takes rows in hand; what is missing in the result is not ours to send. While the store does not answer it tries
// again for a while: a claim of unknown outcome ends by itself.
func (d *Deliverer) claim(ctx context.Context, rows []row) ([]*job, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	claims := make([]store.DeliveryClaim, len(rows))
	for i, r := range rows {
		claims[i] = store.DeliveryClaim{SKey: r.skey, OutSeq: r.outSeq, Sent: d.marker.sent(r.skey)}
	}
	sender := d.claimant()
	var held time.Time
	var found []store.Delivery
	err := d.persist(ctx, time.Now().Add(claimPatience), func(ctx context.Context) (err error) {
		held = time.Now()
		found, err = d.deps.Outbox.ClaimDeliveries(ctx, sender, claims)
		return err // the caller logs it
	})
	if err != nil {
		return nil, err
	}
	jobs := make([]*job, len(found))
	for i := range found {
		jobs[i] = &job{Delivery: found[i], sender: sender, held: held}
	}
	return jobs, nil
}

// start delivers j in a goroutine of its own; a slot of its lane must have been taken.
func (d *Deliverer) start(j *job) {
	d.jobs.Go(func() { d.deliver(d.work, j) })
}

// persist repeats f while the store does not answer, until a moment or the end of ctx.
func (d *Deliverer) persist(ctx context.Context, until time.Time, f func(ctx context.Context) error) error {
	for backoff := 100 * time.Millisecond; ; backoff = min(2*backoff, outagePause) {
		err := withTimeout(ctx, f)
		if !errors.Is(err, store.ErrUnavailable) || time.Now().Add(backoff).After(until) || !daemon.Sleep(ctx, backoff) {
			return err
		}
	}
}

func withTimeout(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return f(ctx)
}

func (d *Deliverer) ack(ctx context.Context, b bus.Work) {
	if b == nil {
		return
	}
	if err := b.Ack(); err != nil {
		d.deps.Logger.DebugContext(ctx, "doorbell not acknowledged, it rings again", "err", err)
	}
}
