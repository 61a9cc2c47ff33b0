// Package live is what a chat sees while a run works: a sign that somebody is typing, and the answer as it is being
// written.
//
//	run_started ──► Watcher ──► show, one per run ◄── frames of the worker
//	                              │
//	                              ├──► typing, until the run rests or ends
//	                              └──► previews, as long as Redis says that this process shows the session
//
// All of it is best effort: nothing waits for it but the final text, and that only for an edit that is on its way
// ([Watcher] answers hermes.delivery.v1.PreviewStop). The order that keeps a late edit away: a show holds the preview of
// the session first and then reads that the run goes on; a run ends before its final text can be sent; who sends it looks
// for the holder first.
package live
