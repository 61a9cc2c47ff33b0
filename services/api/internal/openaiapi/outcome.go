package openaiapi

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"

	"github.com/hermes-runtime/hermes/services/api/internal/drain"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// unanswered is the error of a run that gave no answer; nil if it did.
func unanswered(final runapi.Event) error {
	if e := runapi.Unanswered(final); e != nil {
		return e
	}
	switch final.Kind {
	case runapi.Cancelled:
		return &httpapi.Error{
			Status: http.StatusConflict, Type: httpapi.TypeConflict, Code: "run_cancelled", Message: "the run was stopped",
		}
	case runapi.Failed:
		return &httpapi.Error{
			Status: http.StatusInternalServerError, Type: httpapi.TypeInternal, Code: "run_failed",
			Message: cmp.Or(final.Text, "the run failed"),
		}
	default:
		return nil
	}
}

// problem is the error as the client gets it, with a word on whether to send the request again.
func (c *call) problem(header http.Header, err error) error {
	switch {
	case errors.Is(err, errWaited):
		err = &httpapi.Error{
			Status: http.StatusGatewayTimeout, Type: httpapi.TypeTimeout, Code: "wait_timeout",
			Message: "the run goes on, its answer will be at /v1/runs/" + cmp.Or(header.Get(runHeader), header.Get(requestHeader)),
		}
	case errors.Is(err, drain.ErrStopping):
		err = httpapi.Unavailable("stopping", "the service is stopping, send the request again")
	}
	e, known := errors.AsType[*httpapi.Error](err)
	if known && e.Status != http.StatusBadRequest {
		header.Set(retryHeader, strconv.FormatBool(c.repeatable(e)))
	}
	return err
}

// repeatable reports whether the same request may have another outcome and does no harm. Repeated without a key it is
// another message: its run would do everything once more.
func (c *call) repeatable(e *httpapi.Error) bool {
	switch e.Status {
	case http.StatusGatewayTimeout:
		return c.Keyed
	case http.StatusServiceUnavailable:
		return c.Keyed || c.stateless // the run of a stateless request was stopped
	case http.StatusTooManyRequests:
		return !c.Keyed // refused, once and for all for this key
	default:
		return false
	}
}
