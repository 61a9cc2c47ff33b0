package historycache

import (
	"container/list"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Options bound the cache.
type Options struct {
	// Entries is how many conversations are kept, Bytes how much their messages may take.
	Entries int
	Bytes   int
}

// DefaultOptions are 10000 conversations in 64 MiB.
func DefaultOptions() Options { return Options{Entries: 10_000, Bytes: 64 << 20} }

// Entry is the newest part of a conversation as of a finished run.
type Entry struct {
	// SessionID is the conversation, DoneSeq the end of the inbox range of its newest finished run, RunGen that run's.
	SessionID uuid.UUID
	DoneSeq   int64
	RunGen    int64
	// Messages end with those of that run, all of them, also those that an earlier attempt stored. There are at least
	// Limit, or the conversation has no more; older ones are cut off.
	Messages []store.Message
	Limit    int
}

// Cache holds entries by their conversation.
type Cache struct {
	opts Options

	mu      sync.Mutex
	entries map[uuid.UUID]*list.Element // of Entry
	// recent has the one used last in front.
	recent *list.List
	bytes  int
}

// New returns an empty cache.
func New(opts Options) *Cache {
	return &Cache{opts: opts, entries: map[uuid.UUID]*list.Element{}, recent: list.New()}
}

// State is what the cache knows of a history.
type State int

const (
	// Miss is nothing: the history has to be read from the store.
	Miss State = iota
	// Stale is the history up to a run: what runs behind it added has to be read from the store.
	Stale
	// Hit is the whole history.
	Hit
)

// Query asks for the history of a claimed run.
type Query struct {
	// SessionID, DoneSeq and Attempts are those that the claim returned.
	SessionID uuid.UUID
	DoneSeq   int64
	Attempts  int
	// Limit is how many messages are wanted, the newest.
	Limit int
}

// Found answers a Query. Its messages are shared: do not write to them.
type Found struct {
	State State
	// Messages are the newest Limit of a Hit, oldest first. Those of a Stale answer wait to be extended.
	Messages []store.Message
	// After is the RunGen behind which the store has to be read for a Stale answer.
	After int64

	limit int
}

// Extend returns the history of a Stale answer: delta is what store.Transcript's HistoryAfter returned for After and the
// limit of the query.
func (f Found) Extend(delta []store.Message) []store.Message {
	return newest(slices.Concat(f.Messages, delta), f.limit)
}

// Get returns what is known of the history. An entry that holds fewer messages than are wanted is a Miss.
func (c *Cache) Get(q Query) Found {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.entries[q.SessionID]
	if element == nil || entryOf(element).Limit < q.Limit {
		return Found{}
	}
	c.recent.MoveToFront(element)
	e := entryOf(element)
	found := Found{State: Stale, Messages: newest(e.Messages, q.Limit), After: e.RunGen, limit: q.Limit}
	if e.DoneSeq == q.DoneSeq && q.Attempts == 1 {
		found.State = Hit
	}
	return found
}

// Put keeps the history as it is after a run has been finished. An older state than the one that is kept is ignored, and
// so is one that is too large for the cache. The messages must not be written to any more.
func (c *Cache) Put(e Entry) {
	if len(e.Messages) > e.Limit {
		e.Messages = slices.Clone(newest(e.Messages, e.Limit)) // or what was cut off would stay in memory
	}
	if e.bytes() > c.opts.Bytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.entries[e.SessionID]; old != nil {
		if entryOf(old).RunGen > e.RunGen {
			return
		}
		c.remove(old)
	}
	c.entries[e.SessionID] = c.recent.PushFront(e)
	c.bytes += e.bytes()
	for c.bytes > c.opts.Bytes || len(c.entries) > c.opts.Entries {
		c.remove(c.recent.Back())
	}
}

// Drop forgets a conversation.
func (c *Cache) Drop(sessionID uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element := c.entries[sessionID]; element != nil {
		c.remove(element)
	}
}

// Size returns how many conversations are kept, and what they take.
func (c *Cache) Size() (entries, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), c.bytes
}

func (c *Cache) remove(element *list.Element) {
	e := entryOf(element)
	c.recent.Remove(element)
	delete(c.entries, e.SessionID)
	c.bytes -= e.bytes()
}

func entryOf(element *list.Element) Entry { return element.Value.(Entry) }

// Overheads are what the structures around the content take, roughly.
const (
	entryOverhead   = 256
	messageOverhead = 128
)

func (e Entry) bytes() int {
	n := entryOverhead
	for _, m := range e.Messages {
		n += messageOverhead + len(m.Role) + len(m.Content)
	}
	return n
}

// newest cuts without copying, and so that appending to the result copies.
func newest(messages []store.Message, limit int) []store.Message {
	return slices.Clip(messages[max(0, len(messages)-limit):])
}
