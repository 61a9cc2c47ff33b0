// Package sessionapi lets clients talk to a session and see what it is doing.
//
// A message is accepted once the broker has stored it; its Idempotency-Key is its identity for ever. The same key with
// another body is a conflict, which only the store can tell, by the fingerprint of the body that it keeps:
//
//   - before the message is published, if the store knows the key and answers within a second;
//   - after, if the broker has seen the key within its duplicate window and the store has it a second later;
//   - always where the client waits for the answer.
//
// While the store is down a conflict may thus be answered as a duplicate. Nothing is stored twice in any case: the first
// body stays.
package sessionapi
