// Package sessionapi lets clients talk to a session and see what it is doing. How messages are accepted, and what a
// repeated Idempotency-Key means, is in package submit.
package sessionapi
