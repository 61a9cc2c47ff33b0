// Package delivery brings replies to their platforms (T8).
//
//	doorbell ──► claim the row ──► send its parts ──┬─► settled: mark, ring what waits behind it
//	             (the row decides)                  ├─► put off: the row says when, the sweeper rings
//	                                                └─► dropped: it is somebody else's
//
// Doorbells are hints. Only the next row of a session can be claimed, so replies keep their order; a claim ends after
// 60 s, and no send begins later than 40 s into it. A row is sent once, unless the outcome of a try is unknown: then it
// is sent again where the platform drops the second copy, and at most once more elsewhere.
//
// Where the chat was shown the run while it was being written, the first part replaces what was shown. Rates of the
// platform are shared by all processes; a wait for them gives the row back. An account that its platform refuses is left
// alone for a while, with all its rows.
package delivery
