package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/daemon"
	"github.com/hermes-runtime/hermes/pkg/store"
)

const (
	markBatch = 256
	markWait  = 2 * time.Millisecond
	// hintLife is how long a row that was sent and not marked lets the row behind it go first.
	hintLife = 30 * time.Second
)

// settledJob is a row that waits to be marked.
type settledJob struct {
	*job
	verdict verdict
	// letter is the ID of the dead letter of a row that is given up: the same however often it is marked.
	letter uuid.UUID
}

// marker marks settled rows, many at once, and remembers meanwhile what was settled.
type marker struct {
	outbox  store.Outbox
	logger  *slog.Logger
	settled settledFunc
	wake    chan struct{}

	mu    sync.Mutex
	queue []settledJob
	hints map[string]hint
	// ended: nobody marks any more.
	ended bool
}

// settledFunc takes over a batch that is marked, or was given up because the store refused it or the process ends.
type settledFunc func(ctx context.Context, batch []settledJob, marked []store.Marked, given bool)

type hint struct {
	outSeq int64
	at     time.Time
}

func newMarker(outbox store.Outbox, logger *slog.Logger, settled settledFunc) *marker {
	return &marker{outbox: outbox, logger: logger, settled: settled, wake: make(chan struct{}, 1), hints: map[string]hint{}}
}

// add queues a settled row. From here on the row behind it may be claimed; rows of a session are marked in the order in
// which they were added.
func (m *marker) add(ctx context.Context, j *job, v verdict) {
	s := settledJob{job: j, verdict: v}
	if v.state == store.OutDead {
		s.letter = uuid.Must(uuid.NewV7())
	}
	if !m.enqueue(s) {
		m.settled(ctx, []settledJob{s}, nil, true)
		return
	}
	select {
	case m.wake <- struct{}{}:
	default: // it is awake
	}
}

func (m *marker) enqueue(s settledJob) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return false
	}
	m.queue = append(m.queue, s)
	m.hints[s.SKey] = hint{outSeq: s.OutSeq, at: time.Now()}
	return true
}

// sent is the newest row of a session that was settled here and is not marked yet, 0 if there is none.
func (m *marker) sent(skey string) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.hints[skey]
	if time.Since(h.at) >= hintLife {
		return 0
	}
	return h.outSeq
}

// run marks until ctx ends; what is left then is given up.
func (m *marker) run(ctx context.Context) {
	for m.await(ctx) {
		batch := m.take(markBatch)
		marked, err := m.mark(ctx, batch)
		m.forget(batch)
		m.settled(ctx, batch, marked, err != nil)
	}
	m.mu.Lock()
	m.ended = true
	left := len(m.queue)
	m.mu.Unlock()
	if left > 0 {
		m.settled(ctx, m.take(left), nil, true)
	}
}

// await waits for settled rows, and a moment longer for more of them.
func (m *marker) await(ctx context.Context) bool {
	for m.len() == 0 {
		select {
		case <-m.wake:
		case <-ctx.Done():
			return false
		}
	}
	if m.len() < markBatch {
		return daemon.Sleep(ctx, markWait)
	}
	return true
}

func (m *marker) len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.queue)
}

func (m *marker) take(limit int) []settledJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(len(m.queue), limit)
	batch := m.queue[:n:n]
	m.queue = m.queue[n:]
	return batch
}

// mark repeats until the store has taken the batch: what was sent was sent. A batch that the store refuses is given up,
// its claims end by themselves.
func (m *marker) mark(ctx context.Context, batch []settledJob) ([]store.Marked, error) {
	marks := make([]store.Mark, len(batch))
	for i, s := range batch {
		marks[i] = store.Mark{
			SKey: s.SKey, OutSeq: s.OutSeq, State: s.verdict.state, PlatformIDs: s.encodedIDs(), Reason: s.verdict.reason(), LetterID: s.letter,
		}
	}
	for backoff := 100 * time.Millisecond; ; backoff = min(2*backoff, outagePause) {
		var marked []store.Marked
		err := withTimeout(ctx, func(ctx context.Context) (err error) {
			marked, err = m.outbox.MarkDeliveries(ctx, marks)
			return err // logged below
		})
		if err == nil {
			return marked, nil
		}
		m.logger.WarnContext(ctx, "deliveries not marked", "count", len(marks), "err", err)
		if errors.Is(err, store.ErrRejected) || !daemon.Sleep(ctx, backoff) {
			return nil, err
		}
	}
}

func (m *marker) forget(batch []settledJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range batch {
		if m.hints[s.SKey].outSeq <= s.OutSeq {
			delete(m.hints, s.SKey)
		}
	}
}
