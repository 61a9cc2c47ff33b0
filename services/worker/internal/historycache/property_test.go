package historycache_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/historycache"
)

// world is a session with its conversations as a store holds them, and two workers that take turns with it.
type world struct {
	conversations [][]store.Message
	ids           []uuid.UUID
	current       int
	doneSeq, gen  int64
	workers       []*historycache.Cache
	hits, stale   int
}

var options = historycache.Options{Entries: 2, Bytes: 4096}

func newWorld() *world {
	w := &world{workers: []*historycache.Cache{historycache.New(options), historycache.New(options)}}
	w.open()
	return w
}

func (w *world) open() {
	w.current = len(w.conversations)
	w.conversations = append(w.conversations, nil)
	w.ids = append(w.ids, uuid.New())
}

func (w *world) add(runGen int64, n int) []store.Message {
	stored := w.conversations[w.current]
	for range n {
		content := fmt.Sprintf(`{"text":"%d of conversation %d"}`, len(stored), w.current)
		stored = append(stored, store.Message{RunGen: runGen, N: len(stored), Role: "user", Content: json.RawMessage(content)})
	}
	w.conversations[w.current] = stored
	return stored[len(stored)-n:]
}

// history and historyAfter are what store.Transcript promises.
func (w *world) history(limit int) []store.Message { return last(w.conversations[w.current], limit) }

func (w *world) historyAfter(runGen int64, limit int) []store.Message {
	for i, m := range w.conversations[w.current] {
		if m.RunGen > runGen {
			return last(w.conversations[w.current][i:], limit)
		}
	}
	return nil
}

func last(messages []store.Message, limit int) []store.Message {
	return append([]store.Message{}, messages[max(0, len(messages)-limit):]...)
}

// turn is what a worker does with a run: it reads the history, and may die after a step.
func (w *world) turn(t *rapid.T) {
	w.gen++
	runGen := w.gen
	limit := rapid.SampledFrom([]int{3, 6, 9}).Draw(t, "limit")
	for attempts := 1; ; attempts++ {
		cache := rapid.SampledFrom(w.workers).Draw(t, "worker")
		history := w.read(t, cache, attempts, limit)
		added := w.add(runGen, rapid.IntRange(0, 4).Draw(t, "messages"))
		if attempts < 3 && rapid.Bool().Draw(t, "dies") {
			w.gen++
			continue
		}
		w.doneSeq += int64(rapid.IntRange(1, 3).Draw(t, "covered"))
		cache.Put(historycache.Entry{
			SessionID: w.ids[w.current], DoneSeq: w.doneSeq, RunGen: runGen, Limit: limit, Messages: append(history, added...),
		})
		return
	}
}

// read is the use of the cache by a worker; what it returns must be the history.
func (w *world) read(t *rapid.T, cache *historycache.Cache, attempts, limit int) []store.Message {
	q := historycache.Query{SessionID: w.ids[w.current], DoneSeq: w.doneSeq, Attempts: attempts, Limit: limit}
	found := cache.Get(q)
	var history []store.Message
	switch found.State {
	case historycache.Hit:
		w.hits++
		require.Equal(t, 1, attempts)
		history = found.Messages
	case historycache.Stale:
		w.stale++
		history = found.Extend(w.historyAfter(found.After, limit))
	case historycache.Miss:
		history = w.history(limit)
	}
	require.Equal(t, w.history(limit), append([]store.Message{}, history...))
	return history
}

func TestCache_NeverShowsAnotherHistoryThanTheStore(t *testing.T) {
	t.Parallel()
	hits, stale := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		t.Repeat(map[string]func(*rapid.T){
			"turn": w.turn,
			"turn that was stopped before it began": func(*rapid.T) {
				w.gen++
				w.doneSeq++
			},
			"new": func(*rapid.T) { w.open() },
			"resume": func(t *rapid.T) {
				w.current = rapid.IntRange(0, len(w.conversations)-1).Draw(t, "conversation")
			},
			"": func(t *rapid.T) {
				for _, c := range w.workers {
					entries, bytes := c.Size()
					require.LessOrEqual(t, entries, options.Entries)
					require.LessOrEqual(t, bytes, options.Bytes)
				}
			},
		})
		hits, stale = hits+w.hits, stale+w.stale
	})
	require.Positive(t, hits)
	require.Positive(t, stale)
}
