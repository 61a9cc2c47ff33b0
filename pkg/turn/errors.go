package turn

import (
	"errors"
	"fmt"
)

// GuardError is a failed guard.
type GuardError struct {
	State State
	// Field is what the guard looked at, such as "text" or "intent.confidence".
	Field  string
	Reason string
	// Err is the sentinel of the guard, nil for most.
	Err error
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("turn: guard of %s: %s: %s", e.State, e.Field, e.Reason)
}

func (e *GuardError) Unwrap() error { return e.Err }

// ErrRoutingDecisionMissing: no executor was chosen, or one that does not exist.
var ErrRoutingDecisionMissing = errors.New("turn: routing decision missing")

// ExecuteError is a definite failure of an executor: the turn ends with an apology. Executors return it for what no
// repetition will cure; errors of models need no wrapping.
type ExecuteError struct {
	Executor string
	Err      error
}

func (e *ExecuteError) Error() string { return fmt.Sprintf("turn: execute %s: %v", e.Executor, e.Err) }

func (e *ExecuteError) Unwrap() error { return e.Err }
