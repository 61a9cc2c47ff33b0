// Package runtime works on claimed runs: it takes messages from the inbox, sends them through the turn pipeline with
// the ReAct loop in its middle, and finishes the run.
//
// It is the place where the loop, which knows nothing but models and tools, meets store, bus and streams. A run is
// written by one goroutine, through the committer, and every write carries the run's fence; what happens besides the
// messages (lifecycle events, frames, doorbells) is told after the fact and may be lost.
package runtime
