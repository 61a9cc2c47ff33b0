package bus

import "errors"

// The closed set of errors of this port; test with errors.Is.
var (
	// ErrUnavailable: the broker did not answer. The outcome of a publish is unknown; the same ID may be sent again.
	ErrUnavailable = errors.New("bus: broker unavailable")
	// ErrNoResponder: nobody listens on the subject.
	ErrNoResponder = errors.New("bus: no responder")
	// ErrNotFound: no such message, key or stream.
	ErrNotFound = errors.New("bus: not found")
	// ErrConflict: the revision moved.
	ErrConflict = errors.New("bus: revision conflict")
	// ErrTooLarge: the message is larger than the broker takes.
	ErrTooLarge = errors.New("bus: message too large")
	// ErrFull: the stream is at its limit and discards new messages.
	ErrFull = errors.New("bus: stream is full")
	// ErrBroken: a log reader can no longer vouch for order.
	ErrBroken = errors.New("bus: log reader broken")
)
