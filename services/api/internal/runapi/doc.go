// Package runapi lets clients follow a run: as it goes, by server-sent events, and when it has ended.
//
// A run is named by its id or by a message that it answers (msg_<skey>_<uid>), which may not have a run yet. What
// happens meanwhile comes from services/internal/follow; how it ended comes from the store and nowhere else.
//
// Nothing of a run is shown before the store has said that it belongs to the client's tenant.
package runapi
