package hook

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/hermes-runtime/hermes/pkg/event"
)

// Observer is told about lifecycle events.
type Observer interface {
	// Observe takes one event. The events of a session come one after the other; those of different sessions come at the same
	// time. After an error the event comes again, unless the error is a [backoff.PermanentError]; a
	// [backoff.RetryAfterError] says when. An event may come twice.
	Observe(ctx context.Context, ev *event.Lifecycle) error
}

// ObserverFunc is a function that observes.
type ObserverFunc func(ctx context.Context, ev *event.Lifecycle) error

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, ev *event.Lifecycle) error { return f(ctx, ev) }

// Subscription says who wants which events.
type Subscription struct {
	// Name is that of the durable subscription: while nobody with this name is there, its events wait, for a day at most.
	Name string
	// Types that are wanted; empty: all.
	Types []event.Type
	// Tenants that are wanted; empty: all.
	Tenants  []string
	Observer Observer
	// Timeout bounds one try, Retries is how often a failed one is repeated before the event is given up.
	Timeout time.Duration
	Retries int
	// Parallel bounds the tries that are under way at once; 0: DefaultParallel.
	Parallel int
}

// Values for those who have no reason for others.
const (
	DefaultTimeout  = 5 * time.Second
	DefaultRetries  = 5
	DefaultParallel = 32
)

func (s Subscription) withDefaults() Subscription {
	s.Timeout = cmp.Or(s.Timeout, DefaultTimeout)
	s.Parallel = cmp.Or(s.Parallel, DefaultParallel)
	return s
}

// filter is the type that the broker selects by: with more than one, the process does.
func (s Subscription) filter() string {
	if len(s.Types) == 1 {
		return string(s.Types[0])
	}
	return "*"
}

func (s Subscription) wants(ev *event.Lifecycle) bool {
	return (len(s.Types) == 0 || slices.Contains(s.Types, ev.Type)) &&
		(len(s.Tenants) == 0 || slices.Contains(s.Tenants, ev.Tenant))
}

// EventID identifies an event: its repetitions have the same one.
func EventID(ev *event.Lifecycle) string { return messageID(ev) }
