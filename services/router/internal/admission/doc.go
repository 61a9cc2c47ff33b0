// Package admission moves accepted messages from the log into the inbox of their sessions (T1).
//
//	partition reader ─┐
//	partition reader ─┼─► one queue ──► one loop: take what is there ──► Admit (offsets and rows, one transaction)
//	partition reader ─┘                                                     │
//	       ▲ attach: check the stream against the stored offset             ├─► doorbells, signals, lifecycle events
//	       └──────────────── offset moved, reader broken ◄──────────────────┘
//
// The log has no acknowledgements. What has been read is the offset in the store, and it moves in the transaction that
// stores the rows, so a message is admitted once whatever dies when. The rule that keeps messages from being skipped:
// an offset only ever moves from where its reader began over entries that this reader delivered, in order. After any
// doubt the reader and everything it delivered are dropped, and a new one begins at the stored offset. A reader's life
// and what it delivered are one [attachment]; nothing outlives it.
//
// Before a message is stored it gets the treatment of its sort: commands and refused messages are answered here, edits
// change an earlier row, albums lose the items that are known, and messages of a chat that has moved go to the log of
// its session. What a treatment reads in the store includes all earlier messages of the session.
package admission
