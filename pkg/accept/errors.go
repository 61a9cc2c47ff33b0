package accept

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/hermes-runtime/hermes/pkg/session"
)

// ErrUnavailable: the broker did not store the message in time. It may be sent again with the same id.
var ErrUnavailable = errors.New("accept: broker unavailable")

// InvalidError is a message that no repetition will make acceptable.
type InvalidError struct {
	// Field names what is wrong, as the client knows it.
	Field string
	// Problem says what is wrong with it, without repeating its content.
	Problem string
	// TooLarge: the message is well-formed but exceeds a size limit.
	TooLarge bool
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

// MaxIDBytes bounds an id that a client chooses freely.
const MaxIDBytes = 512

// maxEscapedBytes bounds what is left of such an id in a session key, where some characters take three bytes.
const maxEscapedBytes = 1024

// CheckID refuses a client's id that is empty, too long or cannot be told from another: text that is not Unicode, or
// that a decoder has already replaced by U+FFFD. The error is an *InvalidError that names field.
func CheckID(field, id string) error {
	if id == "" {
		return &InvalidError{Field: field, Problem: "must not be empty"}
	}
	return CheckOptionalID(field, id)
}

// CheckOptionalID is CheckID for an id that may be empty.
func CheckOptionalID(field, id string) error {
	switch {
	case len(id) > MaxIDBytes:
		return &InvalidError{Field: field, Problem: fmt.Sprintf("%d bytes, at most %d are allowed", len(id), MaxIDBytes)}
	case !utf8.ValidString(id), strings.ContainsRune(id, utf8.RuneError):
		return &InvalidError{Field: field, Problem: "not valid UTF-8"}
	case strings.ContainsRune(id, 0):
		return &InvalidError{Field: field, Problem: "contains a NUL byte"}
	case len(session.EscapeID(id)) > maxEscapedBytes:
		return &InvalidError{Field: field, Problem: fmt.Sprintf("over %d bytes once %% and : are escaped", maxEscapedBytes)}
	default:
		return nil
	}
}
