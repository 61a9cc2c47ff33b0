// Package app is the router: it admits accepted messages to their sessions, dispatches runs and deliveries, and sweeps
// up what was left behind.
//
//	emitter, dispatcher ◄── stops ◄── admission ◄── partitions        sweeper ──► dispatcher
//
// Parts start from left to right and stop in reverse: the sweeper, then reading and the batch in hand, then the
// partitions are given up, then the runs that were stopped in that batch are ended, then the doorbells and events of all
// that go out.
package app
