// Package redislease keeps leases in Redis. Every change is one Lua script on one key, and every call is one pipeline
// (500 commands a round trip).
//
// Keys: l:{skey} holds a session lease, pv:{skey} the egress process that shows its run, p:{pp} the router of a partition,
// r:routers the living routers by time of the server, boot the identity of the data. Everything may vanish at any time.
package redislease

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/hermes-runtime/hermes/pkg/bus"
	"github.com/hermes-runtime/hermes/pkg/internal/redisclient"
	"github.com/hermes-runtime/hermes/pkg/lease"
	"github.com/hermes-runtime/hermes/pkg/session"
)

const (
	// timeout: an unreachable server must show well within a renewal.
	timeout = redisclient.Timeout

	bootKey    = "boot"
	routersKey = "r:routers"
)

// Config of the connection.
type Config struct {
	// URL is redis://host:port/db or rediss:// for TLS.
	URL string
	// Password replaces one in the URL if it is set.
	Password string
}

// Leases implements lease.Leases.
type Leases struct {
	client  *redis.Client
	scripts scripts
}

var _ lease.Leases = (*Leases)(nil)

// Open checks the configuration and does not wait for the server: leases are hints, and everything works without them.
func Open(_ context.Context, cfg Config) (*Leases, error) { return newLeases(cfg, timeout) }

func newLeases(cfg Config, timeout time.Duration) (*Leases, error) {
	client, err := redisclient.Open(redisclient.Config(cfg), timeout)
	if err != nil {
		return nil, err // says what it is about
	}
	return &Leases{client: client, scripts: newScripts()}, nil
}

// Close implements lease.Leases.
func (l *Leases) Close() error {
	if err := l.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return fmt.Errorf("close redis: %w", err)
	}
	return nil
}

// Ready implements lease.Leases.
func (l *Leases) Ready(ctx context.Context) error {
	return unavailable("ping redis", l.client.Ping(ctx).Err())
}

// Boot implements lease.Leases.
func (l *Leases) Boot(ctx context.Context) (string, error) {
	pipe := l.client.Pipeline()
	pipe.SetNX(ctx, bootKey, rand.Text(), 0)
	stored := pipe.Get(ctx, bootKey)
	if _, err := pipe.Exec(ctx); err != nil {
		return "", unavailable("read boot identity", err)
	}
	return stored.Val(), nil
}

// CheckEviction implements lease.Leases. An evicted lease lets a second worker start the same run: it is fenced, but
// the work is wasted.
func (l *Leases) CheckEviction(ctx context.Context) (string, error) {
	const setting = "maxmemory-policy"
	values, err := l.client.ConfigGet(ctx, setting).Result()
	if redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") {
		return "redis: " + setting + " cannot be read; it must be noeviction", nil
	}
	if err != nil {
		return "", unavailable("read "+setting, err)
	}
	policy := values[setting]
	switch {
	case strings.HasPrefix(policy, "allkeys-"):
		return "", fmt.Errorf("redis: %s is %s, which evicts leases; set noeviction", setting, policy)
	case strings.HasPrefix(policy, "volatile-"):
		return fmt.Sprintf("redis: %s is %s, which may evict leases; set noeviction", setting, policy), nil
	}
	return "", nil
}

// Reserve implements lease.Sessions.
func (l *Leases) Reserve(ctx context.Context, leases []lease.Lease) ([]lease.Grant, error) {
	return l.take(ctx, "reserve leases", leases, lease.ReserveTTL, false)
}

// Acquire implements lease.Sessions.
func (l *Leases) Acquire(ctx context.Context, leases []lease.Lease) ([]lease.Grant, error) {
	return l.take(ctx, "acquire leases", leases, lease.TTL, true)
}

func (l *Leases) take(ctx context.Context, doing string, leases []lease.Lease, ttl time.Duration, overReserved bool) ([]lease.Grant, error) {
	flag := "0"
	if overReserved {
		flag = "1"
	}
	calls := make([]call, len(leases))
	for i, x := range leases {
		calls[i] = call{leaseKey(x.SKey), []any{x.Gen, x.Value(), ttl.Milliseconds(), flag}}
	}
	answers, err := l.runAll(ctx, l.scripts.acquire, calls)
	if err != nil {
		return nil, unavailable(doing, err)
	}
	grants := make([]lease.Grant, len(leases))
	for i, a := range answers {
		if grants[i], err = grant(leases[i].SKey, a); err != nil {
			return nil, unavailable(doing, err)
		}
	}
	return grants, nil
}

// grant reads {1} or {0, stored value}.
func grant(skey string, answer any) (lease.Grant, error) {
	parts, _ := answer.([]any)
	if len(parts) == 1 && parts[0] == int64(1) {
		return lease.Grant{OK: true}, nil
	}
	if len(parts) != 2 {
		return lease.Grant{}, fmt.Errorf("unexpected answer %v", answer)
	}
	value, _ := parts[1].(string)
	held, err := lease.Parse(skey, value)
	return lease.Grant{Held: held}, err
}

// Renew implements lease.Sessions.
func (l *Leases) Renew(ctx context.Context, leases []lease.Lease) ([]lease.Renewed, error) {
	calls := make([]call, len(leases))
	for i, x := range leases {
		calls[i] = call{leaseKey(x.SKey), []any{x.Value(), lease.TTL.Milliseconds()}}
	}
	answers, err := l.runAll(ctx, l.scripts.renew, calls)
	if err != nil {
		return nil, unavailable("renew leases", err)
	}
	renewed := make([]lease.Renewed, len(leases))
	for i, a := range answers {
		switch a {
		case int64(1):
			renewed[i] = lease.Held
		case int64(-1):
			renewed[i] = lease.Absent
		default:
			renewed[i] = lease.Lost
		}
	}
	return renewed, nil
}

// Release implements lease.Sessions.
func (l *Leases) Release(ctx context.Context, leases []lease.Lease) error {
	calls := make([]call, len(leases))
	for i, x := range leases {
		calls[i] = call{leaseKey(x.SKey), []any{x.Value()}}
	}
	_, err := l.runAll(ctx, l.scripts.release, calls)
	return unavailable("release leases", err)
}

// Lookup implements lease.Sessions. A value that no lease has is taken for none: Acquire overwrites it.
func (l *Leases) Lookup(ctx context.Context, skeys []string) ([]*lease.Lease, error) {
	found := make([]*lease.Lease, 0, len(skeys))
	for batch := range slices.Chunk(skeys, pipelineSize) {
		pipe := l.client.Pipeline()
		values := make([]*redis.StringCmd, len(batch))
		for i, skey := range batch {
			values[i] = pipe.Get(ctx, leaseKey(skey))
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return nil, unavailable("look leases up", err)
		}
		for i, v := range values {
			if err := v.Err(); err != nil && !errors.Is(err, redis.Nil) {
				return nil, unavailable("look leases up", err)
			}
			found = append(found, stored(batch[i], v.Val()))
		}
	}
	return found, nil
}

func stored(skey, value string) *lease.Lease {
	held, err := lease.Parse(skey, value)
	if err != nil {
		return nil
	}
	return &held
}

func leaseKey(skey string) string { return "l:{" + skey + "}" }

func previewKey(skey string) string { return "pv:{" + skey + "}" }

func partitionKey(p int) string { return "p:{" + bus.PartitionToken(p) + "}" }

// allPartitions is what a router may own.
func allPartitions() []int { return indexes(session.Partitions) }

// unavailable: whatever went wrong, it says nothing about a lease. Errors of the client never hold the password.
func unavailable(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", doing, lease.ErrUnavailable, err)
}
