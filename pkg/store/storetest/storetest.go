// Package storetest is the conformance suite of the store port: every backend and every fake passes [Run].
//
// Cases look at a store through the port alone, and each gets a fresh one, so that they run in parallel and a backend
// may be shared by nothing. JSON is compared by meaning: a backend may give it back in another form.
package storetest

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Backend is a fresh, empty store and what the port does not offer but the suite needs.
type Backend struct {
	Store store.Store
	// Advance lets d pass for the store, at once. A store whose clock cannot be set moves its rows into the past
	// instead: it subtracts d from every non-null sessions.queued_at and touched_at and outbox.next_at, until and
	// created_at. Nothing else that the suite looks at depends on time. The real clock may go on besides.
	Advance func(tb testing.TB, d time.Duration)
	// TakeOver is T6 without its conditions: the session's run, which is running, is queued again. In sessions: gen+1,
	// owner null, state queued, queued_at now, attempt+1; in runs: queued, owner null, last_gen as in sessions.
	TakeOver func(tb testing.TB, skey string)
	// Suspend is T7, or the operator's pause, without their conditions: the session goes to waiting or paused. In
	// sessions: gen+1, owner null, state; in runs, if there is a current one: waiting, owner null, last_gen as in sessions.
	Suspend func(tb testing.TB, skey string, to store.SessionState)
	// Conversations returns those of a session, oldest first.
	Conversations func(tb testing.TB, skey string) []Conversation
	// ToolCalls returns the ledger of a run, in any order.
	ToolCalls func(tb testing.TB, runID uuid.UUID) []store.ToolCall
	// DeadLetters returns all dead letters, in any order.
	DeadLetters func(tb testing.TB) []store.DeadLetter
	// Workers returns the newest beat of every worker, in any order.
	Workers func(tb testing.TB) []store.WorkerBeat
}

// Conversation is a row of conversations.
type Conversation struct {
	SessionID uuid.UUID
	Ended     bool
	EndReason string
}

// Run runs the suite. newBackend is called once per case and cleans up by t.Cleanup.
func Run(t *testing.T, newBackend func(t *testing.T) Backend) {
	t.Helper()
	for _, topic := range topics() {
		t.Run(topic.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range topic.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, &env{Backend: newBackend(t)})
				})
			}
		})
	}
}

type topic struct {
	name  string
	cases []testCase
}

type testCase struct {
	name string
	run  func(t *testing.T, e *env)
}

func topics() []topic {
	return []topic{
		{"offsets", offsetCases()},
		{"admit", admitCases()},
		{"stop", stopCases()},
		{"reset", resetCases()},
		{"items", itemCases()},
		{"edit", editCases()},
		{"claim", claimCases()},
		{"checkpoint", checkpointCases()},
		{"finish", finishCases()},
		{"stops", stopsCases()},
		{"handover", handoverCases()},
		{"stop queued", stopQueuedCases()},
		{"read", readCases()},
		{"outbox", outboxCases()},
		{"previews", previewCases()},
		{"aliases", aliasCases()},
		{"sweep", sweepCases()},
		{"concurrent", concurrentCases()},
		{"races", raceCases()},
		{"property", propertyCases()},
	}
}
