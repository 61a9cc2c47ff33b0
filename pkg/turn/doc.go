// Package turn is the pipeline of one run: six states, each with an entry guard, work, an exit guard, a span and a place
// in the histogram hermes_state_duration_seconds.
//
//	preprocess ─► recognise ─► route ─► execute ─► render ─► commit
//	    │             │          │         │          │         │
//	 rejected     rule match  fallback  apology    raw text  fenced: discard
//
// A guard that fails is a [*GuardError] that names state and field; it takes the stated path and never ends in silence:
// a turn ends committed, with a reply, or its error says why nothing was written.
//
// A Pipeline is immutable and safe for concurrent use; a [Turn] belongs to one call of [Pipeline.Run].
package turn
