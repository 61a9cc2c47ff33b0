package runapi

import (
	"cmp"
	"net/http"
	"time"

	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// refusedPause is what a client should wait before it sends another message to a session that is full.
const refusedPause = 5 * time.Second

// Unanswered is the error of a message that no run answers, as its final event tells; nil if one does.
func Unanswered(final Event) *httpapi.Error {
	switch final.Code {
	case CodeRefused:
		return &httpapi.Error{
			Status: http.StatusTooManyRequests, Type: httpapi.TypeRateLimit, Code: CodeRefused, RetryAfter: refusedPause,
			Message: cmp.Or(final.Text, "the message was refused"),
		}
	case CodeSuperseded:
		return &httpapi.Error{
			Status: http.StatusConflict, Type: httpapi.TypeConflict, Code: CodeSuperseded,
			Message: "a newer message of the session took the place of this one",
		}
	default:
		return nil
	}
}
