// Package hold keeps what stops a partition until an operator has chosen: Postgres went back, because it was restored from
// a backup, and the log holds messages that had been admitted, and may have been answered, before.
//
// Routers write a [Hold] to the map of the engine ([bus.BucketEngine]) and read the operator's choice from it; whoever
// serves operators uses [List] and [Choose]. The revision of the key is the fence: no write overwrites one that it has not
// seen. All functions are safe for concurrent use.
package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
)

// Choice is what happens to the messages that are admitted once more.
type Choice string

const (
	// Answer runs them all again.
	Answer Choice = "answer"
	// Store keeps them in the history of their sessions without an answer.
	Store Choice = "store"
	// SkipAnswered answers those of which no lifecycle event of the last 24 hours says that they were answered.
	SkipAnswered Choice = "skip-answered"
)

// ReasonWentBack is the only reason so far.
const ReasonWentBack = "postgres went back"

var (
	// ErrNotHeld: the partition is not held, or somebody has chosen before.
	ErrNotHeld = errors.New("partition is not held")
	// ErrUnknownChoice: there is no such choice.
	ErrUnknownChoice = errors.New("unknown choice")
)

// ParseChoice reads a choice; ErrUnknownChoice otherwise.
func ParseChoice(s string) (Choice, error) {
	switch c := Choice(s); c {
	case Answer, Store, SkipAnswered:
		return c, nil
	default:
		return "", fmt.Errorf("%w %q: not one of %s, %s, %s", ErrUnknownChoice, s, Answer, Store, SkipAnswered)
	}
}

// Hold says why and since when a partition is held, and how it goes on.
type Hold struct {
	Partition int       `json:"partition"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	Stream    string    `json:"stream"`
	// Created tells the stream from a later one of that name.
	Created time.Time `json:"stream_created"`
	// Offset is what Postgres knows, CopiedOffset what it knew before it went back.
	Offset       int64 `json:"offset"`
	CopiedOffset int64 `json:"copy_offset"`
	// Choice is "" until an operator has chosen.
	Choice Choice `json:"choice"`
	// UntilSeq is the last sequence to which the choice applies. Behind it the hold is over.
	UntilSeq int64 `json:"until_seq"`
}

// Covers reports whether the choice applies to a message of that stream and sequence.
func (h *Hold) Covers(stream string, created time.Time, seq int64) bool {
	return h.Stream == stream && h.Created.Equal(created) && seq <= h.UntilSeq
}

func key(partition int) string { return "hold." + bus.PartitionToken(partition) }

// Get returns the hold of a partition and its revision, nil if there is none. The revision is needed to write the next.
func Get(ctx context.Context, kv bus.KV, partition int) (*Hold, uint64, error) {
	value, revision, err := kv.Get(ctx, key(partition))
	if errors.Is(err, bus.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read the hold of partition %d: %w", partition, err)
	}
	if len(value) == 0 { // it is over
		return nil, revision, nil
	}
	var h Hold
	if err := json.Unmarshal(value, &h); err != nil {
		return nil, 0, fmt.Errorf("read the hold of partition %d: %w", partition, err)
	}
	return &h, revision, nil
}

// Put writes a hold over the revision that Get returned; bus.ErrConflict if somebody else has written meanwhile.
func Put(ctx context.Context, kv bus.KV, h Hold, revision uint64) error {
	value, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode hold: %w", err)
	}
	if _, err := kv.Put(ctx, key(h.Partition), value, revision); err != nil {
		return fmt.Errorf("hold partition %d: %w", h.Partition, err)
	}
	return nil
}

// End forgets the hold of a partition, see Put.
func End(ctx context.Context, kv bus.KV, partition int, revision uint64) error {
	if _, err := kv.Put(ctx, key(partition), nil, revision); err != nil {
		return fmt.Errorf("end the hold of partition %d: %w", partition, err)
	}
	return nil
}

// List returns the holds that are not over, in order of partitions. Those with a choice are being worked off.
func List(ctx context.Context, kv bus.KV) ([]Hold, error) {
	var holds []Hold
	for p := range session.Partitions {
		h, _, err := Get(ctx, kv, p)
		if err != nil {
			return nil, err
		}
		if h != nil {
			holds = append(holds, *h)
		}
	}
	return holds, nil
}

// Choose lets a held partition go on. ErrUnknownChoice, or ErrNotHeld if there is nothing to choose (any more).
func Choose(ctx context.Context, kv bus.KV, partition int, choice Choice) error {
	if _, err := ParseChoice(string(choice)); err != nil {
		return err
	}
	h, revision, err := Get(ctx, kv, partition)
	if err != nil {
		return err
	}
	if h == nil || h.Choice != "" {
		return fmt.Errorf("partition %d: %w", partition, ErrNotHeld)
	}
	h.Choice = choice
	err = Put(ctx, kv, *h, revision)
	if errors.Is(err, bus.ErrConflict) {
		return fmt.Errorf("partition %d: %w: %w", partition, ErrNotHeld, err)
	}
	return err
}
