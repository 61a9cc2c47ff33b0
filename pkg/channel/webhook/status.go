package webhook

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
)

// classifyStatus turns an answer into a class: a clear refusal may be tried again, a gateway that lost the answer leaves
// the outcome unknown, anything else that is not 2xx is final.
func classifyStatus(resp *http.Response, now time.Time) error {
	code := resp.StatusCode
	if code >= 200 && code < 300 {
		return nil
	}
	e := &channel.SendError{Class: channel.Permanent, Status: code, Err: errors.New("the receiver refused the message")}
	switch {
	case code >= 300 && code < 400:
		e.Err = errors.New("the receiver redirects, which is not followed")
	case code == http.StatusGone:
		e.Err = errors.New("the receiver is gone")
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests:
		e.Class, e.RetryAfter = channel.NotSent, retryAfter(resp.Header, now)
	case code == http.StatusBadGateway, code == http.StatusGatewayTimeout:
		e.Class = channel.Unknown
	case code >= 500:
		e.Class, e.RetryAfter = channel.NotSent, retryAfter(resp.Header, now)
	}
	return e
}

// retryAfter reads seconds or an HTTP date, 0 if there is neither.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}
