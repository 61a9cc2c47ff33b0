// Package storetest is the conformance suite of the store port: every backend and every fake passes [Run].
//
// Cases look at a store through the port alone, and each gets a fresh one, so that they run in parallel and a backend
// may be shared by nothing. JSON is compared by meaning: a backend may give it back in another form.
package storetest

import (
	"testing"
	"time"

	"github.com/hermes-runtime/hermes/pkg/store"
)

// Backend is a fresh, empty store and its clock.
type Backend struct {
	Store store.Store
	// Advance lets d pass for the store, at once. A store whose clock cannot be set moves its rows into the past
	// instead: it subtracts d from every time of its tables but those of conversations and offsets. The real clock may go on besides.
	Advance func(tb testing.TB, d time.Duration)
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
		{"policy", policyCases()},
		{"collect", collectCases()},
		{"suspend", suspendCases()},
		{"takeover", takeoverCases()},
		{"give up", giveUpCases()},
		{"resume", resumeCases()},
		{"replies", replyCases()},
		{"operator", operatorCases()},
		{"timers", timerCases()},
		{"purge", purgeCases()},
		{"fault races", faultRaceCases()},
		{"property", propertyCases()},
	}
}
