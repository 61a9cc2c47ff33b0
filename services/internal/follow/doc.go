// Package follow turns what workers send while a run works into the events of that run: in order, without gaps and once.
//
// Frames come from the worker and may be lost; a snapshot fills the gap. How a run ended comes from the store and nowhere
// else:
//
//	worker ── frames, snapshots ──► cursor ──┐
//	                                         ├──► Feed ──► events, the last one final
//	store ─── now and then, and on END ─► watch ─┘
package follow
