package natsbus

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

type kv struct {
	bus    *Bus
	bucket string
	store  atomic.Pointer[jetstream.KeyValue]
}

// OpenKV implements bus.Bus. A bucket in memory comes back empty after a restart of the broker.
func (b *Bus) OpenKV(ctx context.Context, bucket string) (bus.KV, error) {
	s := &kv{bus: b, bucket: bucket}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *kv) open(ctx context.Context) error {
	cfg := jetstream.KeyValueConfig{Bucket: s.bucket, Storage: jetstream.FileStorage, Replicas: s.bus.cfg.Streams.Replicas}
	if s.bus.cfg.Streams.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	store, err := s.bus.js.CreateKeyValue(ctx, cfg)
	if errors.Is(err, jetstream.ErrBucketExists) {
		// Configured otherwise, by an operator or another version: used as it is.
		store, err = s.bus.js.KeyValue(ctx, s.bucket)
	}
	if err != nil {
		return wrap("open bucket "+s.bucket, err)
	}
	s.store.Store(&store)
	return nil
}

// try calls f, and once more if the bucket had to be created again.
func (s *kv) try(ctx context.Context, f func(jetstream.KeyValue) error) error {
	err := f(*s.store.Load())
	if !isStoreGone(err) {
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	return f(*s.store.Load())
}

// Get implements bus.KV.
func (s *kv) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	var e jetstream.KeyValueEntry
	err := s.try(ctx, func(store jetstream.KeyValue) (err error) {
		e, err = store.Get(ctx, key)
		return err
	})
	if err != nil {
		return nil, 0, wrap("get "+s.bucket+"/"+key, err)
	}
	return e.Value(), e.Revision(), nil
}

// Put implements bus.KV.
func (s *kv) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	var written uint64
	err := s.try(ctx, func(store jetstream.KeyValue) (err error) {
		if revision == 0 {
			written, err = store.Create(ctx, key, value)
		} else {
			written, err = store.Update(ctx, key, value, revision)
		}
		return err
	})
	return written, wrap("put "+s.bucket+"/"+key, err)
}
