// Package cancel ends runs that were stopped before a worker claimed them, so that nobody has to wait for a free slot to
// see a stop confirmed.
//
//	admission ──► queue ──► one loop: read what the run takes ──► StopQueued ──► doorbells, events
//	                                                                └─ claimed meanwhile ──► signal to the worker
//
// All of it may be lost: the stop is in the session row, and the worker that claims the run finds it there and ends the
// run itself. Where nobody does within a few seconds, the sweeper has the run ended in the same form, whoever owns it.
package cancel
