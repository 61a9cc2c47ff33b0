package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// scanBatch is how many events are asked for at a time.
const scanBatch = 256

// ScanEvents implements bus.Events. It reads through a consumer of its own, which nobody acknowledges, so a lost
// connection or message ends the scan with bus.ErrUnavailable.
func (b *Bus) ScanEvents(ctx context.Context, partition int, eventType string, since time.Time, f func(bus.Msg) error) error {
	doing := fmt.Sprintf("scan %s of partition %d", eventType, partition)
	c, err := b.js.CreateConsumer(ctx, bus.StreamEvents, jetstream.ConsumerConfig{
		FilterSubject:     bus.EventFilter(partition, eventType),
		DeliverPolicy:     jetstream.DeliverByStartTimePolicy,
		OptStartTime:      &since,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: inactive,
	})
	if err != nil {
		return wrap(doing, err)
	}
	info := c.CachedInfo()
	defer b.discardConsumer(ctx, bus.StreamEvents, info.Name)
	s := scan{left: info.NumPending, f: f}
	for s.left > 0 && err == nil {
		err = s.next(ctx, c)
	}
	return wrap(doing, err)
}

// scan is what is left of a scan.
type scan struct {
	left, delivered uint64
	f               func(bus.Msg) error
}

// next reads one batch. An empty one ends the scan: the events behind it have left the stream meanwhile.
func (s *scan) next(ctx context.Context, c jetstream.Consumer) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	batch, err := c.FetchNoWait(int(min(s.left, scanBatch)))
	if err != nil {
		return err
	}
	before := s.delivered
	for m := range batch.Messages() {
		if err == nil {
			err = s.deliver(m)
		}
	}
	if err != nil || batch.Error() != nil {
		return errors.Join(err, batch.Error())
	}
	if s.delivered == before {
		s.left = 0
	}
	return nil
}

func (s *scan) deliver(m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return err
	}
	s.delivered++
	s.left--
	if meta.Sequence.Consumer != s.delivered {
		return fmt.Errorf("%w: event %d lost on the way", bus.ErrUnavailable, s.delivered)
	}
	id, h := fromHeader(m.Headers())
	return s.f(bus.Msg{Subject: m.Subject(), ID: id, Header: h, Data: m.Data()})
}
