package store

import (
	"errors"
	"fmt"
)

// The closed set of errors of this port; test with errors.Is or errors.As.
var (
	// ErrUnavailable: the database did not answer; the call may be repeated. Every method of this port is safe to repeat.
	ErrUnavailable = errors.New("store: database unavailable")
	// ErrRejected: the database refuses the content (SQL class 21, 22, 23, 54): repeating cannot help.
	ErrRejected = errors.New("store: content rejected")
	// ErrNotFound: no such row.
	ErrNotFound = errors.New("store: not found")
	// ErrFenced: the run is somebody else's now. Stop, discard, write nothing more.
	ErrFenced = errors.New("store: fenced")
)

// OffsetMovedError says that other readers own these partitions now: attach them again.
type OffsetMovedError struct {
	Partitions []int
}

func (e *OffsetMovedError) Error() string {
	return fmt.Sprintf("store: ingest offset moved in partitions %v", e.Partitions)
}
