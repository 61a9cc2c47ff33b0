package bus

import "time"

// Config says how streams are kept. The zero value is not valid; start from DefaultConfig.
type Config struct {
	// Streams is the number of ING streams: 1 in development, 16 in production. It divides 64.
	Streams int `koanf:"streams"`
	// Replicas of every stream but EVT.
	Replicas int `koanf:"replicas"`
	// Memory keeps every stream in memory: required while the store is memory, or a restart would answer old messages
	// again.
	Memory bool `koanf:"-"`
	// IngestMaxAge bounds how long an accepted message may wait for admission.
	IngestMaxAge time.Duration `koanf:"ingest_max_age"`
	// IngestMaxBytes bounds each ING stream; a full stream refuses messages.
	IngestMaxBytes int64 `koanf:"ingest_max_bytes"`
	// EventMaxBytes bounds EVT; the oldest events go first.
	EventMaxBytes int64 `koanf:"event_max_bytes"`
}

// DefaultConfig suits one server.
func DefaultConfig() Config {
	return Config{
		Streams:        1,
		Replicas:       1,
		IngestMaxAge:   72 * time.Hour,
		IngestMaxBytes: 1 << 30,
		EventMaxBytes:  256 << 20,
	}
}

// DuplicateWindow is the time in which the broker drops a second message of one ID. Postgres drops later ones.
const DuplicateWindow = 2 * time.Minute

// ObjectMaxAge is how long the object store keeps what no inbox needs any more: as long as the inbox itself.
const ObjectMaxAge = 30 * 24 * time.Hour

// RunQueue is the work queue of a worker class.
func RunQueue(class string) Queue {
	return Queue{Stream: StreamRun, Durable: "run-" + class, Filter: RunFilter(class), AckWait: 10 * time.Second, MaxAckPending: 20_000}
}

// OutQueue is the work queue of a platform's egress. AckWait equals the outbox claim, so that a redelivery never meets
// a live claim for long.
func OutQueue(platform string) Queue {
	return Queue{Stream: StreamOut, Durable: "out-" + platform, Filter: OutFilter(platform), AckWait: 60 * time.Second, MaxAckPending: 20_000}
}

// EventQueue subscribes to one type of lifecycle event, "*" for all. Processes that use the same name share its events.
func EventQueue(name, eventType string) Queue {
	return Queue{
		Stream: StreamEvents, Durable: "evt-" + name, Filter: "evt.*.*." + eventType, New: true,
		AckWait: 30 * time.Second, MaxAckPending: 20_000,
	}
}
