// Package natsbus is the message bus on NATS with JetStream.
//
// Nothing is buffered while the broker is away: what cannot be sent now fails with bus.ErrUnavailable, or, for stored
// messages, is sent again under the same id within the caller's deadline. Subscriptions and work queues come back by
// themselves after a reconnect; log readers never do (see bus.Log).
//
// Streams in memory are gone after a restart of a single broker. Every process re-creates them, on reconnect and when a
// publish or a fetch meets their absence.
package natsbus
