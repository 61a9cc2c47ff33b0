// Package bus is the port to the message broker: a durable log per partition, work queues, and messages that may be
// lost. [natsbus] is its only backend; [bustest] holds the suite that every implementation passes.
//
// Names and subjects are built here and nowhere else. All methods are safe for concurrent use.
package bus

import (
	"context"
	"time"
)

// Header holds message headers; keys keep their case.
type Header map[string][]string

// Get returns the first value of key, or "".
func (h Header) Get(key string) string {
	if v := h[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// Set replaces the values of key.
func (h Header) Set(key, value string) { h[key] = []string{value} }

// Msg is a message on the bus.
type Msg struct {
	Subject string
	// ID is the Nats-Msg-Id: within the stream's duplicate window a second message of the same ID is dropped.
	ID     string
	Header Header
	Data   []byte
	// Reply is set on requests: answer with Notify to this subject.
	Reply string
	// Lazy spares a message of PublishAll its own answer: that of the next one counts for it too, and both are sent again
	// together. The last one of a call is never lazy. All of them must go to one stream; a lazy message that it refuses
	// while it takes the next one is lost unnoticed.
	Lazy bool
}

// Ack says that a message is stored.
type Ack struct {
	Stream string
	Seq    uint64
	// Duplicate: an earlier message of this ID was stored instead. That is success.
	Duplicate bool
}

// Publisher stores messages in streams.
type Publisher interface {
	// Publish returns once the message is stored. Errors: ErrUnavailable (no answer, no responders, no stream: may be
	// sent again with the same ID), ErrTooLarge, ErrFull, or the context's.
	Publish(ctx context.Context, m Msg) (Ack, error)
	// PublishAll sends all messages before it waits for the first answer; errs[i] belongs to msgs[i]. Messages keep
	// their order within one call.
	PublishAll(ctx context.Context, msgs []Msg) (errs []error)
}

// Notifier sends and receives messages that are not stored: at most once, in order per publisher and subject.
type Notifier interface {
	// Notify returns before anything was received.
	Notify(ctx context.Context, m Msg) error
	// Listen sends each message on subject (may hold the wildcards * and >) to ch. A full channel drops messages: ch
	// is shared and must be drained. Messages sent after Listen returned arrive.
	Listen(subject string, ch chan<- Msg) (Subscription, error)
	// Request waits for one answer. ErrNoResponder if nobody listens.
	Request(ctx context.Context, m Msg) (Msg, error)
}

// Subscription ends with Close; the channel stays open.
type Subscription interface {
	Close() error
}

// Queue names a durable work queue: a consumer of a work-queue stream.
type Queue struct {
	Stream  string
	Durable string
	Filter  string
	// New begins behind what the stream holds when the queue is created. Such a queue of EVT is a subscription.
	New bool
	// AckWait is the time after which an unacknowledged message comes again.
	AckWait       time.Duration
	MaxAckPending int
}

// Worker takes messages off a work queue.
type Worker interface {
	// Fetch waits until at least one message is there or wait has passed, and returns at most limit messages. No message in
	// time is an empty slice. Messages that were fetched and not acknowledged come again after AckWait.
	Fetch(ctx context.Context, limit int, wait time.Duration) ([]Work, error)
}

// Work is one message of a work queue. Ack and Nak are not waited for; a lost one means a redelivery.
type Work interface {
	Msg() Msg
	Ack() error
	// Nak gives the message back at once.
	Nak() error
}

// WorkQueues opens work queues.
type WorkQueues interface {
	// Work opens q, creating stream and consumer where they are missing, also later after a restart of the broker.
	Work(ctx context.Context, q Queue) (Worker, error)
}

// LogInfo describes the stream that holds a partition.
type LogInfo struct {
	Stream string
	// Created tells a re-created stream from the one that was read before.
	Created           time.Time
	FirstSeq, LastSeq uint64
	// Bytes is what the stream holds, MaxBytes what it may hold.
	Bytes, MaxBytes int64
}

// Entry is a message of a partition's log.
type Entry struct {
	Msg
	Partition int
	Seq       uint64
	At        time.Time
}

// Log reads partitions in order, without acknowledgements.
type Log interface {
	// LogInfo describes the stream that holds the partition now.
	LogInfo(ctx context.Context, partition int) (LogInfo, error)
	// EntryAt returns the stream's message at seq, whatever its partition; ErrNotFound if it is gone.
	EntryAt(ctx context.Context, partition int, seq uint64) (Entry, error)
	// SeqSince returns the first sequence of the stream with a time not before t, or LastSeq+1.
	SeqSince(ctx context.Context, partition int, t time.Time) (uint64, error)
	// LastEntry returns the partition's newest message; ErrNotFound if there is none.
	LastEntry(ctx context.Context, partition int) (Entry, error)
	// TrimLog removes the partition's entries up to and including seq.
	TrimLog(ctx context.Context, partition int, seq uint64) error
	// OldLog is the log as it was kept in a stream of that name, before the number of streams was changed; ErrNotFound if
	// the stream is gone.
	OldLog(ctx context.Context, partition int, stream string) (Log, error)
	// ReadLog delivers the partition's entries with seq >= from to out, in order and without gaps, until the reader is
	// closed or breaks. It never resumes by itself: after any doubt (disconnect, missed heartbeat, gap, consumer gone) it
	// breaks, and the caller checks the stream before it opens another.
	ReadLog(ctx context.Context, partition int, from uint64, out chan<- Entry) (LogReader, error)
}

// LogReader is an open reader.
type LogReader interface {
	// Broken is closed when the reader delivers nothing more; Err then says why (nil after Close).
	Broken() <-chan struct{}
	Err() error
	// Close waits until nothing more is sent to the channel.
	Close() error
}

// Objects keep what is too large for a message, for [ObjectMaxAge].
type Objects interface {
	// PutObject stores data under name, durable on return; storing the same name again replaces it.
	PutObject(ctx context.Context, name string, data []byte) error
	// GetObject returns ErrNotFound for a name that is not there any more.
	GetObject(ctx context.Context, name string) ([]byte, error)
}

// Events reads lifecycle events that have been kept.
type Events interface {
	// ScanEvents calls f with the events of a partition and a type that were stored since a time, in order, up to the last
	// one at the time of the call. It ends with the first error of f.
	ScanEvents(ctx context.Context, partition int, eventType string, since time.Time, f func(Msg) error) error
}

// KV is a small replicated map with revisions.
type KV interface {
	// Get returns ErrNotFound for a missing key.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Put writes if the key is at revision (0: does not exist); ErrConflict otherwise.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
}

// Bus is the whole port.
type Bus interface {
	Publisher
	Notifier
	WorkQueues
	Log
	Objects
	Events
	// EnsureStreams creates missing streams and refuses to change what cannot be changed.
	EnsureStreams(ctx context.Context) error
	// OpenKV opens a bucket, creating it if needed.
	OpenKV(ctx context.Context, bucket string) (KV, error)
	// Ready reports whether the broker answers now.
	Ready(ctx context.Context) error
	// Close flushes what was sent and disconnects.
	Close() error
}
