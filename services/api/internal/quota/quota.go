// Package quota bounds how many requests one key may send, or one user where there are no keys. The rates are shared by
// all processes of the service while Redis answers. Safe for concurrent use.
package quota

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/hermes-runtime/hermes/pkg/ratelimit"
	"github.com/hermes-runtime/hermes/services/api/internal/auth"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// Quota counts requests.
type Quota struct {
	limits    ratelimit.Limiter
	perMinute int
}

// New returns a quota of perMinute requests for each key that has no bound of its own; 0: no bound.
func New(limits ratelimit.Limiter, perMinute int) *Quota {
	return &Quota{limits: limits, perMinute: perMinute}
}

// The headers are those that clients of OpenAI read.
const (
	limitHeader     = "X-Ratelimit-Limit-Requests"
	remainingHeader = "X-Ratelimit-Remaining-Requests"
	resetHeader     = "X-Ratelimit-Reset-Requests"
)

// Limit lets requests of a known sender pass to next while there are some left.
func (q *Quota) Limit(next httpapi.Handler) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		p := auth.From(r.Context())
		perMinute := cmp.Or(p.RequestsPerMinute, q.perMinute)
		if perMinute == 0 {
			return next(w, r)
		}
		w.Header().Set(limitHeader, strconv.Itoa(perMinute))
		wait, err := q.limits.Take(r.Context(), "api:"+p.Tenant, ratelimit.Bucket{
			Key: owner(p), Rate: float64(perMinute) / time.Minute.Seconds(), Burst: perMinute,
		})
		if err != nil {
			return fmt.Errorf("count request: %w", err)
		}
		if wait <= 0 {
			return next(w, r)
		}
		w.Header().Set(remainingHeader, "0")
		w.Header().Set(resetHeader, max(wait.Round(time.Millisecond), time.Millisecond).String())
		return &httpapi.Error{
			Status: http.StatusTooManyRequests, Type: httpapi.TypeRateLimit, Code: "rate_limit_exceeded", RetryAfter: wait,
			Message: fmt.Sprintf("over %d requests per minute", perMinute),
		}
	}
}

// owner is whose requests are counted. A key counts by itself, whoever else stands for the same user.
func owner(p auth.Principal) string {
	if p.Key != "" {
		return "key:" + p.Key
	}
	return "user:" + p.User
}
