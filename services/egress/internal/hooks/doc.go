// Package hooks runs the observe hooks of the configuration: each is a durable subscription to lifecycle events, brought
// to an HTTP endpoint or to a NATS subject by one of the egress processes.
//
//	seat (KV) ── one process per hook ──► hook.Subscriber ──► Endpoint or Subject
//
// One process at a time, because that keeps the events of a conversation in order. If it dies, another one goes on with
// what it had in hand.
package hooks
