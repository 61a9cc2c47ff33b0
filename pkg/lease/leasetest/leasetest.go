// Package leasetest is the suite that every implementation of lease.Leases passes.
package leasetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hermes-runtime/hermes/pkg/lease"
)

// Backend is an implementation whose time the suite can move.
type Backend struct {
	lease.Leases
	// Advance lets d pass for everything that expires.
	Advance func(d time.Duration)
	// Forget loses all data.
	Forget func()
}

// Run checks newBackend, which returns an empty backend, closed with the test.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	groups := map[string]map[string]func(t *testing.T, b Backend){
		"Sessions": sessionTests(),
		"Routers":  routerTests(),
		"Previews": previewTests(),
		"Server":   serverTests(),
	}
	for group, tests := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			for name, test := range tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, newBackend(t))
				})
			}
		})
	}
}

const (
	skey = "abcdefghijklmnopqrstuvwxyz"
	// tick is less than any difference of two times that matter.
	tick = 200 * time.Millisecond
)

func held(gen int64, holder string) lease.Lease {
	return lease.Lease{SKey: skey, Gen: gen, RunID: fmt.Sprintf("run%d", gen), Holder: holder}
}

func reserved(gen int64, router string) lease.Lease { return held(gen, lease.RouterHolder(router)) }

func acquire(t *testing.T, b Backend, l lease.Lease) lease.Grant {
	t.Helper()
	grants, err := b.Acquire(t.Context(), []lease.Lease{l})
	require.NoError(t, err)
	require.Len(t, grants, 1)
	return grants[0]
}

func reserve(t *testing.T, b Backend, l lease.Lease) lease.Grant {
	t.Helper()
	grants, err := b.Reserve(t.Context(), []lease.Lease{l})
	require.NoError(t, err)
	require.Len(t, grants, 1)
	return grants[0]
}

func renew(t *testing.T, b Backend, l lease.Lease) lease.Renewed {
	t.Helper()
	renewed, err := b.Renew(t.Context(), []lease.Lease{l})
	require.NoError(t, err)
	require.Len(t, renewed, 1)
	return renewed[0]
}

func lookup(t *testing.T, b Backend) *lease.Lease {
	t.Helper()
	found, err := b.Lookup(t.Context(), []string{skey})
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}
