// Package historycache keeps the newest messages of conversations in a worker, so that a turn that goes on where the
// last one ended reads no history.
//
// An entry is what the history was at a done_seq. It is used as it is only if the claim of a run returned the same
// conversation and done_seq and the run was never claimed before; otherwise somebody else may have added to it, and what
// is missing is read from the store behind the run that the entry ends with. A conversation is only ever appended to, by
// one run at a time, in the order of their generation: so an entry is never wrong, only short.
//
// It is a pure data structure. All methods are safe for concurrent use.
package historycache
