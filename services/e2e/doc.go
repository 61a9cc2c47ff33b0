// Package e2e proves the promises of docs/architecture.md end to end: the services run as separate processes, built as
// they ship, on real NATS, Redis and PostgreSQL; models and platforms are local servers that speak the real protocol.
package e2e
