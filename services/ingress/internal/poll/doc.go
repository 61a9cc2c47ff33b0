// Package poll reads updates from a platform that hands them out to one caller at a time, with several replicas ready.
//
// One replica owns a feed: it holds a key of the bucket "cursors", whose value names the owner and the offset, and whose
// revision is the fence. The owner rewrites it every few seconds; when its revision has not moved for a while, by the
// watcher's own clock, another replica takes it over.
//
//	          key free, or unmoved for Expire
//	watching ─────────────────────────────────► polling
//	   ▲                                           │
//	   └───── revision moved, conflict, no write ──┘
//
// The order is: accept the updates, store the offset, then ask for more, which is what confirms them. A replica that goes
// on too long can therefore only accept what is accepted again under the same identity, and confirm what is stored.
package poll
