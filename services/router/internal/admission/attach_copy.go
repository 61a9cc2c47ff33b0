package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/daemon"
)

const (
	copyEvery   = 10 * time.Second
	copyTimeout = 5 * time.Second
	// copyAge is how old a copy has to be to prove that Postgres went back: a crash takes the last moments of admission
	// with it, as they are committed without a sync.
	copyAge = time.Minute
)

// copied is a copy of a partition's offset that lives with the broker. A Postgres that is restored from a backup knows less
// than it.
type copied struct {
	Stream  string    `json:"stream"`
	Created time.Time `json:"created"`
	// Offsets rise. The first is the newest that is older than copyAge, the others are younger.
	Offsets []copiedOffset `json:"offsets"`
}

type copiedOffset struct {
	Seq int64     `json:"seq"`
	At  time.Time `json:"at"`
}

func (c *copied) sameStream(stream string, created time.Time) bool {
	return c.Stream == stream && c.Created.Equal(created)
}

// note adds an offset and forgets the ones that are not needed any more.
func (c *copied) note(seq int64, now time.Time) {
	c.Offsets = append(c.Offsets, copiedOffset{Seq: seq, At: now})
	for len(c.Offsets) > 1 && now.Sub(c.Offsets[1].At) > copyAge {
		c.Offsets = c.Offsets[1:]
	}
}

// last is the newest offset, -1 if there is none.
func (c *copied) last() int64 {
	if len(c.Offsets) == 0 {
		return -1
	}
	return c.Offsets[len(c.Offsets)-1].Seq
}

// proves reports whether an offset that old is higher than seq.
func (c *copied) proves(seq int64, now time.Time) bool {
	for _, o := range c.Offsets {
		if o.Seq > seq && now.Sub(o.At) > copyAge {
			return true
		}
	}
	return false
}

func copyKey(partition int) string { return "off." + bus.PartitionToken(partition) }

// engine is the map that copies and holds live in, opened when it is needed first.
func (a *Admitter) engine(ctx context.Context) (bus.KV, error) {
	a.mu.Lock()
	kv := a.kv
	a.mu.Unlock()
	if kv != nil {
		return kv, nil
	}
	kv, err := a.Log.OpenKV(ctx, bus.BucketEngine)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kv = kv
	return kv, nil
}

// loadCopy returns an empty copy if there is none.
func loadCopy(ctx context.Context, kv bus.KV, partition int) (c copied, revision uint64, err error) {
	value, revision, err := kv.Get(ctx, copyKey(partition))
	if errors.Is(err, bus.ErrNotFound) {
		return copied{}, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(value, &c)
	}
	if err != nil {
		return copied{}, 0, fmt.Errorf("read the copy of the offset: %w", err)
	}
	return c, revision, nil
}

func saveCopy(ctx context.Context, kv bus.KV, partition int, c copied, revision uint64) error {
	value, err := json.Marshal(c)
	if err == nil {
		_, err = kv.Put(ctx, copyKey(partition), value, revision)
	}
	if err != nil {
		return fmt.Errorf("copy the offset: %w", err)
	}
	return nil
}

// resetCopy forgets all offsets but the one at which reading begins.
func (a *Admitter) resetCopy(ctx context.Context, partition int, begun start) error {
	kv, err := a.engine(ctx)
	if err != nil {
		return err
	}
	_, revision, err := loadCopy(ctx, kv, partition)
	if err != nil {
		return err
	}
	c := copied{Stream: begun.stream, Created: begun.created}
	c.note(begun.position, a.now())
	return saveCopy(ctx, kv, partition, c, revision)
}

// copyOffsets keeps the copies current.
func (a *Admitter) copyOffsets(ctx context.Context) {
	for daemon.Sleep(ctx, copyEvery) {
		a.copyAll(ctx)
	}
}

// copyAll gives up at the first error: the broker is down then, and the next round is near.
func (a *Admitter) copyAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	for _, at := range a.open() {
		if err := errors.Join(a.endHold(ctx, at), a.copyOne(ctx, at)); err != nil {
			a.Logger.DebugContext(ctx, "offset not copied", "partition", at.partition, "err", err)
			return
		}
	}
}

// copyOne notes how far an attachment has come. One that has ended, or that has not moved since, notes nothing, and neither
// does one that another router has overtaken.
func (a *Admitter) copyOne(ctx context.Context, at *attachment) error {
	seq := at.position.Load()
	if at.ended() || seq == at.copied {
		return nil
	}
	kv, err := a.engine(ctx)
	if err != nil {
		return err
	}
	c, revision, err := loadCopy(ctx, kv, at.partition)
	if err != nil {
		return err
	}
	if !c.sameStream(at.stream, at.created) {
		c = copied{Stream: at.stream, Created: at.created}
	}
	if seq > c.last() {
		c.note(seq, a.now())
		err = saveCopy(ctx, kv, at.partition, c, revision)
	}
	if errors.Is(err, bus.ErrConflict) {
		return nil
	}
	if err == nil {
		at.copied = seq
	}
	return err
}
