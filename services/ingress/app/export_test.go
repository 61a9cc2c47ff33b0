package app

import (
	"time"

	"github.com/hermes-runtime/hermes/pkg/config"
	"github.com/hermes-runtime/hermes/services/ingress/internal/poll"
	"github.com/hermes-runtime/hermes/services/internal/backends"
)

// NewWithTiming is New with other times.
func NewWithTiming(cfg config.Config, b backends.Backends, polls poll.Timing, album time.Duration) (*App, error) {
	return build(cfg, b, timing{poll: polls, album: album})
}
