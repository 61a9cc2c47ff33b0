// Package bustest is the suite that every implementation of bus.Bus passes.
package bustest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/session"
)

const (
	// soon is how long something may take that is expected to happen.
	soon = 10 * time.Second
	// tenant of all messages of the suite.
	tenant = "acme"
)

// Run checks newBus, which returns a bus whose streams exist and are empty, of one ingest stream, closed with the test.
func Run(t *testing.T, newBus func(t *testing.T) bus.Bus) {
	t.Helper()
	groups := map[string]map[string]func(t *testing.T, b bus.Bus){
		"Publisher":  publisherTests(),
		"Notifier":   notifierTests(),
		"WorkQueues": workTests(),
		"Log":        logTests(),
		"KV":         kvTests(),
		"Objects":    objectTests(),
		"Events":     eventTests(),
		"Bus":        lifecycleTests(),
	}
	for group, tests := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, newBus(t))
				})
			}
		})
	}
}

// skeyIn returns the n-th session key of a partition.
func skeyIn(partition, n int) string {
	for i := 0; ; i++ {
		key := fmt.Sprintf("s%d", i)
		if session.Partition(key) != partition {
			continue
		}
		if n == 0 {
			return key
		}
		n--
	}
}

// event is a message for a partition's log.
func event(partition int, id string) bus.Msg {
	return bus.Msg{Subject: bus.IngestSubject(tenant, skeyIn(partition, 0)), ID: id, Data: []byte("body of " + id)}
}

func publish(t *testing.T, b bus.Bus, msgs ...bus.Msg) []bus.Ack {
	t.Helper()
	var acks []bus.Ack
	for _, m := range msgs {
		ack, err := b.Publish(t.Context(), m)
		require.NoError(t, err)
		acks = append(acks, ack)
	}
	return acks
}

// receive takes one value that is expected.
func receive[T any](t *testing.T, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		require.FailNow(t, "nothing received")
		panic("unreachable")
	}
}

// readLog reads the log of partition 3.
func readLog(t *testing.T, b bus.Bus, from uint64) (bus.LogReader, <-chan bus.Entry) {
	t.Helper()
	out := make(chan bus.Entry, 16)
	r, err := b.ReadLog(t.Context(), 3, from, out)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r, out
}

func tooLarge() []byte { return []byte(strings.Repeat("x", 2<<20)) }

func cancelled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
