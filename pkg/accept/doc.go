// Package accept takes a message into the engine (T0): it cleans and checks it, publishes it to the ingest log and
// returns once the broker has stored it. Ingress and API both accept through it.
//
// Nothing is acknowledged that is not stored, and a message that is refused leaves nothing behind. Publishes of one
// session are serialised, so that a retry of the broker cannot reorder a chat. Safe for concurrent use.
package accept
