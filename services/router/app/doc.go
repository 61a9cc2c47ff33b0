// Package app is the router: it admits accepted messages to their sessions, dispatches runs and deliveries, and sweeps
// up what was left behind.
//
//	emitter, dispatcher ◄── admission ◄── partitions        sweeper ──► dispatcher
//
// Parts start from left to right and stop in reverse: the sweeper, then reading and the batch in hand, then the
// partitions are given up, then the doorbells and events of that batch go out.
package app
