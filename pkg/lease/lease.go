// Package lease is the port to session leases and to the membership of routers. Leases prevent wasted parallel work;
// they are hints: the generation fence in the store is what makes one active run per session true.
//
// [redislease] is the only backend; [leasetest] holds the suite. All methods are safe for concurrent use.
package lease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Times of leases, see docs/architecture.md. A holder stops working Margin before its lease may end.
const (
	TTL        = 15 * time.Second
	ReserveTTL = 2 * time.Second
	Renewal    = 5 * time.Second
	Margin     = 3 * time.Second

	PartitionTTL     = 6 * time.Second
	PartitionRenewal = 2 * time.Second
	MemberTTL        = 6 * time.Second

	PreviewTTL = 10 * time.Second
)

// ErrUnavailable: Redis did not answer. It is never a statement about a lease.
var ErrUnavailable = errors.New("lease: redis unavailable")

const routerPrefix = "router/"

// Lease names a session, the run that it is held for and the holder: "router/<id>" or "<worker id>/<nonce>".
type Lease struct {
	SKey   string
	Gen    int64
	RunID  string
	Holder string
}

// RouterHolder is the holder of a reservation: any worker may take it over.
func RouterHolder(routerID string) string { return routerPrefix + routerID }

// Value is the stored form "<gen>;<run_id>;<holder>".
func (l Lease) Value() string { return fmt.Sprintf("%d;%s;%s", l.Gen, l.RunID, l.Holder) }

// Reserved reports whether a router holds the lease.
func (l Lease) Reserved() bool { return strings.HasPrefix(l.Holder, routerPrefix) }

// Parse reads a stored value.
func Parse(skey, value string) (Lease, error) {
	p := strings.SplitN(value, ";", 3)
	if len(p) != 3 {
		return Lease{}, fmt.Errorf("lease of %s: %q is not gen;run;holder", skey, value)
	}
	gen, err := strconv.ParseInt(p[0], 10, 64)
	if err != nil {
		return Lease{}, fmt.Errorf("lease of %s: generation: %w", skey, err)
	}
	return Lease{SKey: skey, Gen: gen, RunID: p[1], Holder: p[2]}, nil
}

// Grant answers a Reserve or Acquire.
type Grant struct {
	OK bool
	// Held is the lease that stands in the way; zero if OK.
	Held Lease
}

// Renewed answers a Renew.
type Renewed int

// Held: renewed. Absent: the server forgot the lease; it is never revived, claim again with a higher generation. Lost:
// somebody else holds it.
const (
	Held Renewed = iota
	Absent
	Lost
)

// Sessions are the leases of sessions. Every call takes a batch and is one pipeline; results are in the order of the
// arguments. An error (ErrUnavailable) says nothing about any of them.
type Sessions interface {
	// Reserve takes leases for a router, for ReserveTTL. Refused where a lease of the same or a higher generation lives.
	Reserve(ctx context.Context, leases []Lease) ([]Grant, error)
	// Acquire takes leases for a worker, for TTL: if there is none, if the stored generation is lower, if it is equal and
	// only reserved, or if the value is already this one.
	Acquire(ctx context.Context, leases []Lease) ([]Grant, error)
	// Renew extends leases whose value is unchanged.
	Renew(ctx context.Context, leases []Lease) ([]Renewed, error)
	// Release deletes leases whose value is unchanged.
	Release(ctx context.Context, leases []Lease) error
	// Lookup returns the stored leases; nil where there is none.
	Lookup(ctx context.Context, skeys []string) ([]*Lease, error)
}

// Routers share out partitions.
type Routers interface {
	// Join announces a router for MemberTTL and returns all living ones, sorted. Call it every PartitionRenewal.
	Join(ctx context.Context, routerID string) ([]string, error)
	// Leave removes a router and its partitions at once.
	Leave(ctx context.Context, routerID string) error
	// Own takes or renews partitions for PartitionTTL; own[i] says whether partitions[i] is this router's now.
	Own(ctx context.Context, routerID string, partitions []int) (own []bool, err error)
	// Disown gives up partitions.
	Disown(ctx context.Context, routerID string, partitions []int) error
}

// Previews say which egress process shows the run of a session while it is being written. Without Redis nobody does.
type Previews interface {
	// HoldPreview takes or renews the preview of a session for PreviewTTL; false: another process shows it.
	HoldPreview(ctx context.Context, skey, egressID string) (bool, error)
	// PreviewHolder returns the process that shows the session, "" if there is none.
	PreviewHolder(ctx context.Context, skey string) (egressID string, err error)
	// DropPreview gives it up, if it is this process's.
	DropPreview(ctx context.Context, skey, egressID string) error
}

// Leases is the whole port.
type Leases interface {
	Sessions
	Routers
	Previews
	// Boot returns an identity of the server's data: it changes when the data was lost.
	Boot(ctx context.Context) (string, error)
	// CheckEviction refuses a server that may evict leases; a warning is returned for one that might.
	CheckEviction(ctx context.Context) (warning string, err error)
	Ready(ctx context.Context) error
	Close() error
}
