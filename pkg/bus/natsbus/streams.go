package natsbus

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

const (
	doorbellMaxAge = 10 * time.Minute
	eventMaxAge    = 24 * time.Hour
	// eventDuplicates is longer than anybody tries to publish an event, and short, as the broker remembers each of them.
	eventDuplicates  = 20 * time.Second
	deadLetterMaxAge = 30 * 24 * time.Hour
)

// streamConfigs returns the wanted streams by name.
func streamConfigs(c bus.Config) map[string]jetstream.StreamConfig {
	durable := jetstream.FileStorage
	if c.Memory {
		durable = jetstream.MemoryStorage
	}
	all := []jetstream.StreamConfig{
		doorbells(bus.StreamRun, bus.RunSubjects, c.Replicas),
		doorbells(bus.StreamOut, bus.OutSubjects, c.Replicas),
		events(durable, c.EventMaxBytes),
		deadLetters(durable, c.Replicas),
	}
	for k := range c.Streams {
		all = append(all, ingest(k, durable, c))
	}
	byName := make(map[string]jetstream.StreamConfig, len(all))
	for _, s := range all {
		byName[s.Name] = s
	}
	return byName
}

func ingest(k int, storage jetstream.StorageType, c bus.Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               bus.IngestStream(k, c.Streams),
		Subjects:           bus.IngestSubjects(k, c.Streams),
		Storage:            storage,
		Replicas:           c.Replicas,
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		MaxAge:             c.IngestMaxAge,
		MaxBytes:           unlimited(c.IngestMaxBytes),
		Duplicates:         window(c.IngestMaxAge),
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
}

// doorbells are rebuilt from the store, so they are never worth a disk write.
func doorbells(name, subjects string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:       name,
		Subjects:   []string{subjects},
		Storage:    jetstream.MemoryStorage,
		Replicas:   replicas,
		Retention:  jetstream.WorkQueuePolicy,
		MaxAge:     doorbellMaxAge,
		Duplicates: bus.DuplicateWindow,
	}
}

// events may lose some at a crash; they must not share the disk syncs of ingest.
func events(storage jetstream.StorageType, maxBytes int64) jetstream.StreamConfig {
	s := jetstream.StreamConfig{
		Name:       bus.StreamEvents,
		Subjects:   []string{bus.EventSubjects},
		Storage:    storage,
		Replicas:   1,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardOld,
		MaxAge:     eventMaxAge,
		MaxBytes:   unlimited(maxBytes),
		Duplicates: eventDuplicates,
	}
	if storage == jetstream.FileStorage {
		s.PersistMode = jetstream.AsyncPersistMode
	}
	return s
}

func deadLetters(storage jetstream.StorageType, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:       bus.StreamDeadLetter,
		Subjects:   []string{bus.DeadLetterSubjects},
		Storage:    storage,
		Replicas:   replicas,
		Retention:  jetstream.LimitsPolicy,
		MaxAge:     deadLetterMaxAge,
		Duplicates: bus.DuplicateWindow,
	}
}

func unlimited(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// window: the broker refuses a duplicate window longer than the age limit.
func window(maxAge time.Duration) time.Duration {
	if maxAge > 0 && maxAge < bus.DuplicateWindow {
		return maxAge
	}
	return bus.DuplicateWindow
}

// EnsureStreams creates what is missing and applies changed limits. What the broker cannot change, such as the storage
// of a stream, is an error. Several processes may call it at once.
func (b *Bus) EnsureStreams(ctx context.Context) error {
	if err := b.releaseSubjects(ctx); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(b.streams)) {
		if err := b.ensureStream(ctx, b.streams[name]); err != nil {
			return err
		}
	}
	return nil
}

// releaseSubjects lets ingest streams give up the partitions that belong to others since the number of streams was
// changed: the broker refuses a subject that another stream holds. What they store stays, see OldLog.
func (b *Bus) releaseSubjects(ctx context.Context) error {
	streams := b.js.ListStreams(ctx, jetstream.WithStreamListSubject("ing.>"))
	for info := range streams.Info() {
		cfg := info.Config
		wanted := b.streams[cfg.Name].Subjects
		kept := slices.DeleteFunc(slices.Clone(cfg.Subjects), func(s string) bool { return !slices.Contains(wanted, s) })
		if len(kept) == len(cfg.Subjects) || !strings.HasPrefix(cfg.Name, bus.StreamIngest+"_") {
			continue
		}
		if len(kept) == 0 {
			kept = []string{retired + cfg.Name} // a stream has to have one
		}
		cfg.Subjects = kept
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
			return wrap("release subjects of "+cfg.Name, err)
		}
	}
	return wrap("list streams", streams.Err())
}

// retired begins the subject of a stream that holds no partition any more. Nobody publishes there.
const retired = "retired."

func (b *Bus) ensureStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	_, err := b.js.CreateOrUpdateStream(ctx, cfg)
	return wrap("ensure stream "+cfg.Name, err)
}

// restoreStreams re-creates the streams that a restart of the broker loses. Concurrent calls share one attempt.
func (b *Bus) restoreStreams(ctx context.Context) error {
	done := b.restore.DoChan("", func() (any, error) {
		// The attempt belongs to all callers and must not end with the context of the first.
		shared, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timing.call)
		defer cancel()
		return nil, b.createLost(shared)
	})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case r := <-done:
		return r.Err
	}
}

func (b *Bus) createLost(ctx context.Context) error {
	for _, cfg := range b.streams {
		if !volatile(cfg) {
			continue
		}
		// Create, not update: a stream that exists may have been configured by a newer version.
		_, err := b.js.CreateStream(ctx, cfg)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return wrap("re-create stream "+cfg.Name, err)
		}
	}
	return nil
}

func volatile(cfg jetstream.StreamConfig) bool { return cfg.Storage == jetstream.MemoryStorage }
