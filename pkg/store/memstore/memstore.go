// Package memstore is the store port in memory, for development, tests and the simulation.
//
// It keeps the rules of the SQL statements of the product, package pgstore: the same transitions, fences, counters and
// order, decided under one lock, so that every call is one atomic step. Nothing survives the process. The cost of a call
// that a message causes does not depend on the number of sessions, and appending to a history does not depend on its
// length; operators and Purge look at all sessions.
//
// A [Store] is safe for concurrent use. JSON that it returns is shared with it and must not be modified.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/session"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Store implements store.Store. Make one with New.
type Store struct {
	clock func() time.Time

	mu sync.RWMutex
	// latest is the newest instant that a write has seen.
	latest     time.Time
	sessions   map[string]*sessionRow
	runs       map[uuid.UUID]*runRow
	offsets    map[int]store.Offset
	dead       map[uuid.UUID]*store.StoredLetter
	workers    map[string]workerRow
	aliases    aliases
	previews   map[previewKey][]preview
	partitions [session.Partitions]partition
	due        dueHeap
	// conversations holds those of all sessions.
	conversations map[uuid.UUID]*conversation
	timers        map[string]*store.Timer
	// gaps holds the sessions in which a settled row follows the settled position.
	gaps map[*sessionRow]struct{}
}

var _ store.Store = (*Store)(nil)

// Option changes a Store before its first use.
type Option func(*Store)

// WithClock replaces time.Now.
func WithClock(now func() time.Time) Option {
	return func(s *Store) { s.clock = now }
}

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{
		clock:    time.Now,
		sessions: map[string]*sessionRow{},
		runs:     map[uuid.UUID]*runRow{},
		offsets:  map[int]store.Offset{},
		dead:     map[uuid.UUID]*store.StoredLetter{},
		workers:  map[string]workerRow{},
		aliases:  aliases{canonical: map[store.Address]string{}, leads: map[store.Address]struct{}{}},
		previews: map[previewKey][]preview{},
		timers:   map[string]*store.Timer{},
		gaps:     map[*sessionRow]struct{}{},

		conversations: map[uuid.UUID]*conversation{},
	}
	for i := range s.partitions {
		s.partitions[i].running, s.partitions[i].waiting = map[*sessionRow]struct{}{}, map[*sessionRow]struct{}{}
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Ready reports nil unless ctx has ended.
func (s *Store) Ready(ctx context.Context) error { return alive(ctx) }

// Close does nothing: a Store holds no resources.
func (s *Store) Close() {}

// alive refuses a call whose context has ended, as a database would.
func alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// tick is the time of one write. It never falls: a clock that was set back stands still, so that queues stay in order.
func (s *Store) tick() time.Time {
	s.latest = s.reading()
	return s.latest
}

// reading is the time of one read.
func (s *Store) reading() time.Time {
	if now := s.clock().UTC(); now.After(s.latest) {
		return now
	}
	return s.latest
}
