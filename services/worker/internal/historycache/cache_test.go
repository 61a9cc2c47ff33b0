package historycache_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/worker/internal/historycache"
)

func messages(runGen int64, texts ...string) []store.Message {
	ms := make([]store.Message, len(texts))
	for i, text := range texts {
		ms[i] = store.Message{RunGen: runGen, N: i, Role: "user", Content: json.RawMessage(`"` + text + `"`)}
	}
	return ms
}

func texts(ms []store.Message) []string {
	var list []string
	for _, m := range ms {
		list = append(list, strings.Trim(string(m.Content), `"`))
	}
	return list
}

func filled(id uuid.UUID) *historycache.Cache {
	c := historycache.New(historycache.DefaultOptions())
	c.Put(historycache.Entry{SessionID: id, DoneSeq: 7, RunGen: 3, Limit: 3, Messages: messages(3, "a", "b", "c", "d")})
	return c
}

func TestGet_IsAHitOnlyForTheNextRunOfTheSameConversation(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	cases := []struct {
		name  string
		query historycache.Query
		want  historycache.State
	}{
		{"same position, first claim", historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 3}, historycache.Hit},
		{"fewer messages are wanted", historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 2}, historycache.Hit},
		{"another run was finished elsewhere", historycache.Query{SessionID: id, DoneSeq: 8, Attempts: 1, Limit: 3}, historycache.Stale},
		{"the run was claimed before", historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 2, Limit: 3}, historycache.Stale},
		{"another conversation", historycache.Query{SessionID: uuid.New(), DoneSeq: 7, Attempts: 1, Limit: 3}, historycache.Miss},
		{"more messages are wanted than are kept", historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 4}, historycache.Miss},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, filled(id).Get(tc.query).State)
		})
	}
}

func TestGet_ReturnsTheNewestMessages(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	c := filled(id)
	require.Equal(t, []string{"b", "c", "d"}, texts(c.Get(historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 3}).Messages))
	require.Equal(t, []string{"c", "d"}, texts(c.Get(historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 2}).Messages))
}

func TestExtend_AddsWhatIsMissing(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	c := filled(id)
	query := historycache.Query{SessionID: id, DoneSeq: 9, Attempts: 1, Limit: 3}
	found := c.Get(query)
	require.Equal(t, int64(3), found.After)
	require.Equal(t, []string{"c", "d", "e"}, texts(found.Extend(messages(5, "e"))))
	require.Equal(t, []string{"b", "c", "d"}, texts(found.Extend(nil)), "a run that left nothing behind")
	require.Equal(t, []string{"b", "c", "d"}, texts(c.Get(query).Messages), "the entry stays as it was")
}

func TestPut_IgnoresAnOlderState(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	c := filled(id)
	c.Put(historycache.Entry{SessionID: id, DoneSeq: 5, RunGen: 2, Limit: 3, Messages: messages(2, "a")})
	require.Equal(t, historycache.Hit, c.Get(historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 3}).State)
}

func TestPut_KeepsWithinItsBounds(t *testing.T) {
	t.Parallel()
	a, b, d := uuid.New(), uuid.New(), uuid.New()
	text := strings.Repeat("x", 400)
	entry := func(id uuid.UUID, n int) historycache.Entry {
		ms := make([]string, n)
		for i := range ms {
			ms[i] = text
		}
		return historycache.Entry{SessionID: id, DoneSeq: 1, RunGen: 1, Limit: 50, Messages: messages(1, ms...)}
	}
	state := func(c *historycache.Cache, id uuid.UUID) historycache.State {
		return c.Get(historycache.Query{SessionID: id, DoneSeq: 1, Attempts: 1, Limit: 50}).State
	}
	c := historycache.New(historycache.Options{Entries: 2, Bytes: 8000})
	c.Put(entry(a, 1))
	c.Put(entry(b, 1))
	require.Equal(t, historycache.Hit, state(c, a))
	c.Put(entry(d, 1))
	require.Equal(t, historycache.Miss, state(c, b), "b was used longest ago")
	require.Equal(t, historycache.Hit, state(c, a))
	c.Put(entry(d, 14))
	require.Equal(t, historycache.Miss, state(c, a), "d needs its place")
	require.Equal(t, historycache.Hit, state(c, d))
	c.Put(entry(a, 20))
	require.Equal(t, historycache.Miss, state(c, a), "larger than the whole cache")
	require.Equal(t, historycache.Hit, state(c, d), "and nobody had to go for it")
}

func TestDrop_ForgetsAConversation(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	c := filled(id)
	c.Drop(id)
	require.Equal(t, historycache.Miss, c.Get(historycache.Query{SessionID: id, DoneSeq: 7, Attempts: 1, Limit: 3}).State)
	entries, bytes := c.Size()
	require.Zero(t, entries)
	require.Zero(t, bytes)
}
