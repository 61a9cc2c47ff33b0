package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

const (
	// readBatch bounds the messages on their way to one reader, and so the memory of 64 of them.
	readBatch = 64
	// readExpiry ends a request for messages; the reader then asks again.
	readExpiry = 30 * time.Second
	// inactive ends a consumer whose reader is gone. A reader that is held up by its channel asks for nothing meanwhile.
	inactive = 2 * time.Minute
	// statusRoom holds heartbeats behind a full batch while the reader is held up.
	statusRoom = 16
)

var errClosed = errors.New("reader closed")

// reader is an ordered consumer of its own: the library's resumes by itself at its own cursor, and would skip what was
// written again below it after the stream lost its tail.
//
// The consumer numbers what it delivers; every number must be the one after the last. Everything else than a message, a
// heartbeat or the end of a request breaks the reader.
type reader struct {
	bus       *Bus
	partition int
	stream    string
	consumer  string
	out       chan<- bus.Entry

	sub       *nats.Subscription
	in        chan *nats.Msg
	requested int
	delivered uint64

	cancel context.CancelCauseFunc
	broken chan struct{}
	err    error // set before broken is closed
}

// ReadLog implements bus.Log.
func (l partitionLog) ReadLog(ctx context.Context, partition int, from uint64, out chan<- bus.Entry) (bus.LogReader, error) {
	b := l.bus
	// The reader outlives this call and ends with Close.
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &reader{
		bus:       b,
		partition: partition,
		stream:    l.stream(partition),
		out:       out,
		in:        make(chan *nats.Msg, readBatch+statusRoom),
		cancel:    cancel,
		broken:    make(chan struct{}),
	}
	// Registered first, so that no disconnect passes unnoticed.
	if !b.readers.add(r) {
		cancel(errClosed)
		return nil, fmt.Errorf("read partition %d: %w: bus closed", partition, bus.ErrUnavailable)
	}
	if err := r.open(ctx, from); err != nil {
		b.readers.remove(r)
		b.readers.wg.Done()
		cancel(errClosed)
		return nil, wrap(fmt.Sprintf("read partition %d", partition), err)
	}
	go r.run(life)
	return r, nil
}

func (r *reader) open(ctx context.Context, from uint64) error {
	c, err := r.bus.js.CreateConsumer(ctx, r.stream, jetstream.ConsumerConfig{
		FilterSubject:     bus.IngestFilter(r.partition),
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       max(from, 1),
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactive,
	})
	if err != nil {
		return err
	}
	r.consumer = c.CachedInfo().Name
	if r.sub, err = r.bus.nc.ChanSubscribe(r.bus.nc.NewInbox(), r.in); err != nil {
		return err
	}
	if err := r.request(); err != nil {
		return errors.Join(err, r.sub.Unsubscribe())
	}
	return nil
}

// request asks for the next batch. There is one request at a time.
func (r *reader) request() error {
	body, err := json.Marshal(pullRequest{Batch: readBatch, Expires: readExpiry, Heartbeat: r.bus.timing.heartbeat})
	if err != nil {
		return err
	}
	r.requested = readBatch
	return r.bus.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.stream+"."+r.consumer, r.sub.Subject, body)
}

func (r *reader) run(ctx context.Context) {
	defer r.bus.readers.wg.Done()
	defer r.end(ctx)
	silence := 2 * r.bus.timing.heartbeat
	idle := time.NewTimer(silence)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-idle.C:
			r.fail("no heartbeat")
			return
		case m := <-r.in:
			if err := r.handle(ctx, m); err != nil {
				r.fail(err.Error())
				return
			}
			idle.Reset(silence)
		}
	}
}

func (r *reader) handle(ctx context.Context, m *nats.Msg) error {
	switch status := statusOf(m); status {
	case "":
		return r.deliver(ctx, m)
	case "100": // heartbeat
		return nil
	case "408": // the request expired
		return r.request()
	default:
		return errors.New(strings.ToLower(status + " " + m.Header.Get("Description")))
	}
}

func (r *reader) deliver(ctx context.Context, m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	if meta.Sequence.Consumer != r.delivered+1 {
		return fmt.Errorf("gap: delivery %d after %d", meta.Sequence.Consumer, r.delivered)
	}
	r.delivered++
	e := bus.Entry{Msg: fromNats(m), Partition: r.partition, Seq: meta.Sequence.Stream, At: meta.Timestamp}
	e.Reply = "" // the acknowledgement subject, which nobody may use
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r.out <- e:
	}
	if r.requested--; r.requested == 0 {
		return r.request()
	}
	return nil
}

// fail breaks the reader; the first reason counts.
func (r *reader) fail(reason string) { r.cancel(fmt.Errorf("%w: %s", bus.ErrBroken, reason)) }

func (r *reader) end(ctx context.Context) {
	if cause := context.Cause(ctx); !errors.Is(cause, errClosed) {
		r.err = fmt.Errorf("read partition %d: %w", r.partition, cause)
	}
	r.bus.readers.remove(r)
	close(r.broken)
	r.discard(ctx)
}

// discard tidies up at the broker.
func (r *reader) discard(ctx context.Context) {
	if r.sub.Unsubscribe() == nil {
		r.bus.discardConsumer(ctx, r.stream, r.consumer)
	}
}

// discardConsumer is best effort: what is left ends by itself after a while.
func (b *Bus) discardConsumer(ctx context.Context, stream, name string) {
	if !b.nc.IsConnected() {
		return
	}
	// ctx may have ended; the deletion has a time of its own.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := b.js.DeleteConsumer(ctx, stream, name); err != nil && !isMissing(err) {
		b.logger.DebugContext(ctx, "consumer not deleted", "err", err)
	}
}

// Broken implements bus.LogReader.
func (r *reader) Broken() <-chan struct{} { return r.broken }

// Err implements bus.LogReader.
func (r *reader) Err() error {
	select {
	case <-r.broken:
		return r.err
	default:
		return nil
	}
}

// Close implements bus.LogReader.
func (r *reader) Close() error {
	r.cancel(errClosed)
	<-r.broken
	return nil
}

// readers are those that are open; wg counts them until they have tidied up.
type readers struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	open map[*reader]struct{}
	done bool
}

func (s *readers) add(r *reader) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.open[r] = struct{}{}
		s.wg.Add(1)
	}
	return !s.done
}

func (s *readers) remove(r *reader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, r)
}

// fail breaks all.
func (s *readers) fail(reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.open {
		r.fail(reason)
	}
}

// shut accepts no more, breaks all and waits for them.
func (s *readers) shut(reason string) {
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	s.fail(reason)
	s.wg.Wait()
}
