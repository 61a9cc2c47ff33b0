// Package agentcache keeps built agents, so that a turn need not build the one that its conversation had a moment ago.
//
// An agent belongs to a conversation and is valid for one [Signature] of its configuration: whatever is frozen into an
// agent when it is built is part of it. The speaker is too, since memory and tools act for a person; a second speaker in
// a shared thread gets an agent of his own, over the same history. An agent that is in use is never taken away from its
// user: it is replaced, and closed when its user lets go.
//
// All methods are safe for concurrent use.
package agentcache
