package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/services/internal/hold"
)

// attachment is one reader's hold on a partition, from the check of the stream until any doubt. Entries of an
// attachment that has ended are worthless: a later one reads them again.
type attachment struct {
	partition int
	stream    string
	created   time.Time
	// again and replay are set while messages are read that had been admitted before Postgres went back.
	again  *hold.Hold
	replay *replay
	// done is closed when the attachment ends; drop ends it.
	done <-chan struct{}
	drop context.CancelFunc

	// position is the stored offset as this attachment knows it. Only the admission loop moves it.
	position atomic.Int64
	// delivered is the newest sequence that the reader has delivered.
	delivered atomic.Int64
	// looked is what delivered was when the lag was measured last; it belongs to the measuring loop.
	looked int64
	// copied is the newest position that the copy is known to hold; it belongs to the copying loop.
	copied int64
}

func newAttachment(ctx context.Context, partition int, start start) *attachment {
	ctx, cancel := context.WithCancel(ctx)
	a := &attachment{
		partition: partition, stream: start.stream, created: start.created, again: start.again,
		done: ctx.Done(), drop: cancel, looked: -1, copied: -1,
	}
	a.position.Store(start.position)
	return a
}

func (a *attachment) ended() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// lag is how far the stored offset is behind last, the newest sequence of the stream. Sequences count the messages of
// all partitions of the stream, so a partition in which nothing happens would seem to fall behind: it has no lag if all
// that was delivered is admitted and nothing has come since the last look.
func (a *attachment) lag(last int64) int64 {
	delivered := a.delivered.Load()
	idle := delivered == a.looked && delivered <= a.position.Load()
	a.looked = delivered
	if idle {
		return 0
	}
	return max(0, last-a.position.Load())
}

// delivery is an entry and the attachment that vouches for it.
type delivery struct {
	bus.Entry
	from *attachment
}
