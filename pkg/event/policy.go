package event

import (
	"fmt"
	"slices"
	"strings"
)

// Policy says what a message does to a conversation that is busy.
type Policy string

// Queue: each message is its own turn, in order. Collect: waiting messages of one sender become one turn after a quiet
// window. Latest: only the newest waiting message is answered. Steer: it goes into the running turn at its next step.
// Interrupt: the running turn is stopped and everything that waits becomes one turn. Reject: it is refused.
const (
	PolicyQueue     Policy = "queue"
	PolicyCollect   Policy = "collect"
	PolicyLatest    Policy = "latest"
	PolicySteer     Policy = "steer"
	PolicyInterrupt Policy = "interrupt"
	PolicyReject    Policy = "reject"
)

// Policies returns all of them, the default first.
func Policies() []Policy {
	return []Policy{PolicyQueue, PolicyCollect, PolicyLatest, PolicySteer, PolicyInterrupt, PolicyReject}
}

// CheckPolicy refuses, naming field, what is neither empty nor a policy.
func CheckPolicy(field string, p Policy) error {
	if p == "" || slices.Contains(Policies(), p) {
		return nil
	}
	names := make([]string, 0, len(Policies()))
	for _, known := range Policies() {
		names = append(names, string(known))
	}
	return fmt.Errorf("%s: %q is none of %s", field, p, strings.Join(names, ", "))
}
