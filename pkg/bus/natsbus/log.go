package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// partitionLog implements bus.Log.
type partitionLog struct {
	bus *Bus
	// old is the stream to read instead of the one that holds a partition now.
	old string
}

func (l partitionLog) stream(partition int) string {
	if l.old != "" {
		return l.old
	}
	return bus.IngestStream(partition, l.bus.cfg.Streams.Streams)
}

// LogInfo implements bus.Log.
func (l partitionLog) LogInfo(ctx context.Context, partition int) (bus.LogInfo, error) {
	name := l.stream(partition)
	s, err := l.bus.js.Stream(ctx, name)
	if err != nil {
		return bus.LogInfo{}, wrap("describe stream "+name, err)
	}
	info := s.CachedInfo()
	return bus.LogInfo{
		Stream: name, Created: info.Created, FirstSeq: info.State.FirstSeq, LastSeq: info.State.LastSeq,
		Bytes: int64(info.State.Bytes), MaxBytes: max(0, info.Config.MaxBytes),
	}, nil
}

// OldLog implements bus.Log.
func (l partitionLog) OldLog(ctx context.Context, partition int, stream string) (bus.Log, error) {
	old := partitionLog{bus: l.bus, old: stream}
	if _, err := old.LogInfo(ctx, partition); err != nil {
		return nil, err
	}
	return old, nil
}

// TrimLog implements bus.Log.
func (l partitionLog) TrimLog(ctx context.Context, partition int, seq uint64) error {
	name := l.stream(partition)
	s, err := l.bus.js.Stream(ctx, name)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(bus.IngestFilter(partition)), jetstream.WithPurgeSequence(seq+1))
	}
	return wrap("trim stream "+name, err)
}

// EntryAt implements bus.Log.
func (l partitionLog) EntryAt(ctx context.Context, partition int, seq uint64) (bus.Entry, error) {
	return l.storedEntry(ctx, partition, getRequest{Seq: seq})
}

// LastEntry implements bus.Log.
func (l partitionLog) LastEntry(ctx context.Context, partition int) (bus.Entry, error) {
	return l.storedEntry(ctx, partition, getRequest{LastFor: bus.IngestFilter(partition)})
}

// SeqSince implements bus.Log.
func (l partitionLog) SeqSince(ctx context.Context, partition int, t time.Time) (uint64, error) {
	// Before the search: a message that arrives in between must not be skipped.
	info, err := l.LogInfo(ctx, partition)
	if err != nil {
		return 0, err
	}
	e, err := l.storedEntry(ctx, partition, getRequest{StartTime: &t, NextFor: ">"})
	if errors.Is(err, bus.ErrNotFound) {
		return info.LastSeq + 1, nil
	}
	return e.Seq, err
}

// getRequest asks the stream's leader. The client library would ask any replica, and one that lags behind would hide
// that the stream lost its tail.
type getRequest struct {
	Seq       uint64     `json:"seq,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	LastFor   string     `json:"last_by_subj,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
}

type getResponse struct {
	Error   *jetstream.APIError `json:"error"`
	Message *storedMessage      `json:"message"`
}

type storedMessage struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

func (l partitionLog) storedEntry(ctx context.Context, partition int, req getRequest) (bus.Entry, error) {
	stream := l.stream(partition)
	m, err := l.bus.storedMessage(ctx, stream, req)
	if err != nil {
		return bus.Entry{}, wrap("read stream "+stream, err)
	}
	e, err := m.entry()
	return e, wrap("read stream "+stream, err)
}

func (b *Bus) storedMessage(ctx context.Context, stream string, req getRequest) (*storedMessage, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.withDeadline(ctx)
	defer cancel()
	answer, err := b.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return nil, err
	}
	var r getResponse
	if err := json.Unmarshal(answer.Data, &r); err != nil {
		return nil, err
	}
	if r.Error != nil {
		return nil, r.Error
	}
	if r.Message == nil {
		return nil, jetstream.ErrInvalidJetStreamResponse
	}
	return r.Message, nil
}

func (m *storedMessage) entry() (bus.Entry, error) {
	var raw nats.Header
	if len(m.Header) > 0 {
		var err error
		if raw, err = nats.DecodeHeadersMsg(m.Header); err != nil {
			return bus.Entry{}, err
		}
	}
	partition, err := bus.PartitionOf(m.Subject)
	if err != nil {
		return bus.Entry{}, fmt.Errorf("message %d: %w", m.Seq, err)
	}
	id, h := fromHeader(raw)
	return bus.Entry{
		Msg:       bus.Msg{Subject: m.Subject, ID: id, Header: h, Data: m.Data},
		Partition: partition,
		Seq:       m.Seq,
		At:        m.Time,
	}, nil
}
