// Package redisclient opens connections to Redis as everything here needs them: nothing that is kept there is worth
// waiting for, so a dead server shows within a second, and nothing is sent twice.
package redisclient

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeout of connecting, reading and writing that suits production.
const Timeout = time.Second

// Config of the connection.
type Config struct {
	// URL is redis://host:port/db or rediss:// for TLS.
	URL string
	// Password replaces one in the URL if it is set.
	Password string
}

// quiet drops what the driver writes to standard error: every failure is returned as an error too.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

var silenceDriver = sync.OnceFunc(func() { redis.SetLogger(quiet{}) }) //nolint:gochecknoglobals // the driver has one logger per process

// Open checks the configuration and does not wait for the server.
func Open(cfg Config, timeout time.Duration) (*redis.Client, error) {
	silenceDriver()
	opts, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, errors.New("redis: url: not a redis:// or rediss:// address") // the text of err would show a password
	}
	if cfg.Password != "" {
		opts.Password = cfg.Password
	}
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout = timeout, timeout, timeout
	opts.DialerRetries = 1
	opts.MaxRetries = -1 // a reservation that is sent twice would be refused by itself
	opts.ContextTimeoutEnabled = true
	opts.DisableIdentity = true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}
