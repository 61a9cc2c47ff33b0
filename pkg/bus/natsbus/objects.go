package natsbus

import (
	"context"
	"errors"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// objects is the object store, opened when it is needed first: most processes never do.
type objects struct {
	mu    sync.Mutex
	store jetstream.ObjectStore
}

// PutObject implements bus.Objects.
func (b *Bus) PutObject(ctx context.Context, name string, data []byte) error {
	err := b.tryObjects(ctx, func(s jetstream.ObjectStore) error {
		_, err := s.PutBytes(ctx, name, data)
		return err
	})
	return wrap("put object "+name, err)
}

// GetObject implements bus.Objects.
func (b *Bus) GetObject(ctx context.Context, name string) ([]byte, error) {
	var data []byte
	err := b.tryObjects(ctx, func(s jetstream.ObjectStore) (err error) {
		data, err = s.GetBytes(ctx, name)
		return err
	})
	return data, wrap("get object "+name, err)
}

// tryObjects calls f, and once more if the store had to be created again: one in memory ends with the broker.
func (b *Bus) tryObjects(ctx context.Context, f func(jetstream.ObjectStore) error) error {
	ctx, cancel := b.withDeadline(ctx)
	defer cancel()
	s, err := b.openObjects(ctx, false)
	if err != nil {
		return err
	}
	if err = f(s); !isStoreGone(err) {
		return err
	}
	if s, err = b.openObjects(ctx, true); err != nil {
		return err
	}
	return f(s)
}

func isStoreGone(err error) bool {
	return isOneOf(err, nats.ErrNoResponders, jetstream.ErrNoStreamResponse, jetstream.ErrBucketNotFound, jetstream.ErrStreamNotFound)
}

func (b *Bus) openObjects(ctx context.Context, again bool) (jetstream.ObjectStore, error) {
	b.objects.mu.Lock()
	defer b.objects.mu.Unlock()
	if b.objects.store != nil && !again {
		return b.objects.store, nil
	}
	cfg := jetstream.ObjectStoreConfig{
		Bucket: bus.BucketObjects, TTL: bus.ObjectMaxAge, Storage: jetstream.FileStorage, Replicas: b.cfg.Streams.Replicas,
	}
	if b.cfg.Streams.Memory {
		cfg.Storage = jetstream.MemoryStorage
	}
	s, err := b.js.CreateObjectStore(ctx, cfg)
	if errors.Is(err, jetstream.ErrBucketExists) {
		// Configured otherwise, by an operator or another version: used as it is.
		s, err = b.js.ObjectStore(ctx, bus.BucketObjects)
	}
	if err != nil {
		return nil, wrap("open object store", err)
	}
	b.objects.store = s
	return s, nil
}
