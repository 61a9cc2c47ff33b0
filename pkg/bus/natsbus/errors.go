package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/hermes-runtime/hermes/pkg/bus"
)

// Error codes of the broker that the client library does not name.
const (
	codeMemoryExceeded  jetstream.ErrorCode = 10028
	codeStorageExceeded jetstream.ErrorCode = 10047
	codeStoreFailed     jetstream.ErrorCode = 10077
)

// wrap says what was done and to which sentinel of the port err belongs.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	sentinel := classify(err)
	if sentinel == nil || errors.Is(err, sentinel) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return fmt.Errorf("%s: %w: %w", doing, sentinel, err)
}

// classify returns the sentinel of the port, or nil.
func classify(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return nil
	case errors.Is(err, nats.ErrMaxPayload), errors.Is(err, jetstream.ErrStreamMessageExceedsMaximum):
		return bus.ErrTooLarge
	case isConflict(err):
		return bus.ErrConflict
	case isFull(err):
		return bus.ErrFull
	case isMissing(err):
		return bus.ErrNotFound
	case isUnavailable(err):
		return bus.ErrUnavailable
	}
	return nil
}

func isConflict(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch)
}

// isFull also counts a broker whose whole storage is used up.
func isFull(err error) bool {
	apiErr, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	switch apiErr.ErrorCode { //nolint:exhaustive // the broker has a hundred codes; all others are no limits
	case codeMemoryExceeded, codeStorageExceeded:
		return true
	case codeStoreFailed:
		// One code for every failed write; only the text tells a limit from a broken disk.
		return strings.HasPrefix(apiErr.Description, "maximum ")
	}
	return false
}

func isMissing(err error) bool {
	return isOneOf(err, jetstream.ErrStreamNotFound, jetstream.ErrConsumerNotFound, jetstream.ErrMsgNotFound,
		jetstream.ErrKeyNotFound, jetstream.ErrBucketNotFound, jetstream.ErrObjectNotFound)
}

func isUnavailable(err error) bool {
	if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok {
		return apiErr.Code == http.StatusServiceUnavailable
	}
	return isOneOf(err, context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed,
		nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrReconnectBufExceeded, nats.ErrConnectionDraining,
		jetstream.ErrNoStreamResponse, jetstream.ErrAsyncPublishTimeout, jetstream.ErrTooManyStalledMsgs,
		jetstream.ErrNoHeartbeat, jetstream.ErrServerShutdown, jetstream.ErrConsumerLeadershipChanged,
		jetstream.ErrConsumerDeleted, jetstream.ErrConnectionClosed, jetstream.ErrJetStreamPublisherClosed)
}

func isOneOf(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
