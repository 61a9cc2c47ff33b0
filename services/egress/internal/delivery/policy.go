package delivery

import (
	"errors"
	"strings"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/egress/internal/rate"
)

const (
	// sendStart is how late in a claim a send may begin; the claim lasts 60 s.
	sendStart = 40 * time.Second
	maxTries  = 12
	// The wait doubles with every try.
	firstBackoff, maxBackoff = time.Second, 5 * time.Minute
	// secondLook is the pause before the only repetition of a send of unknown outcome on a platform that may show both.
	secondLook = 30 * time.Second
	// minLife: a younger row is not given up for the number of its tries. Claims that only waited for a rate or for an
	// account count as tries too.
	minLife = 15 * time.Minute
	// maxRetryAfter bounds what a platform may ask for.
	maxRetryAfter = rate.MaxFreeze
	// maxReason bounds the stored reason of a row that is given up.
	maxReason = 2048
)

// verdict says what becomes of a row after a try.
type verdict struct {
	// state settles the row; "" does not.
	state store.OutState
	// dropped: the row is somebody else's, or its claim ends by itself. Else, without a state, the row is put off.
	dropped bool
	after   time.Duration
	maybe   bool
	err     error
}

func sent() verdict                             { return verdict{state: store.OutSent} }
func dead(err error) verdict                    { return verdict{state: store.OutDead, err: err} }
func unknown(err error) verdict                 { return verdict{state: store.OutUnknown, err: err} }
func dropped(err error) verdict                 { return verdict{dropped: true, err: err} }
func putOff(d time.Duration, err error) verdict { return verdict{after: d, err: err} }

// outcome is the word for metrics, spans and events.
func (v verdict) outcome() string {
	switch {
	case v.state != "":
		return string(v.state)
	case v.dropped:
		return "dropped"
	default:
		return "put_off"
	}
}

// reason is why a row is given up, as operators read it and a database takes it.
func (v verdict) reason() string {
	if v.state != store.OutDead || v.err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(v.err.Error(), "\uFFFD"), "\x00", "")
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

var (
	errOutcomeUnknown = errors.New("earlier tries may have reached the platform")
	errAccountPaused  = errors.New("the platform does not accept the account")
	errRateLimited    = errors.New("the rate of the chat or the account is used up")
	errClaimTooOld    = errors.New("the claim is too old to send")
	errRedirected     = errors.New("the platform sends the message from one place to the next")
)

// worthTrying refuses a row that has been sent twice with unknown outcome on a platform that would show a third copy.
func worthTrying(row *store.Delivery, c channel.Capability, age time.Duration) bool {
	return row.Maybe < 2 || idempotent(c, age)
}

func idempotent(c channel.Capability, age time.Duration) bool { return age < c.IdempotentFor }

// afterFailure judges a failed try.
func afterFailure(err error, row *store.Delivery, c channel.Capability, age time.Duration) verdict {
	switch channel.ClassOf(err) {
	case channel.NotSent, channel.Credential:
		return again(row, age, wait(row.Attempts, retryAfter(err)), err)
	case channel.Unknown:
		return afterUnknown(err, row, c, age)
	default: // Permanent, and Moved without an address to go to
		return dead(err)
	}
}

// again puts off until the tries are used up.
func again(row *store.Delivery, age, after time.Duration, err error) verdict {
	if usedUp(row, age) {
		return dead(err)
	}
	return putOff(after, err)
}

func usedUp(row *store.Delivery, age time.Duration) bool {
	return row.Attempts >= maxTries && age >= minLife
}

func afterUnknown(err error, row *store.Delivery, c channel.Capability, age time.Duration) verdict {
	after := wait(row.Attempts, 0)
	if !idempotent(c, age) {
		if row.Maybe > 0 {
			return unknown(err)
		}
		after = secondLook
	}
	if usedUp(row, age) {
		return unknown(err)
	}
	v := putOff(after, err)
	v.maybe = true
	return v
}

// wait is the back-off after a number of tries, at least what the platform asked for.
func wait(attempts int, asked time.Duration) time.Duration {
	backoff := maxBackoff
	if doublings := max(attempts-1, 0); doublings < 9 { // 2^9 s is beyond the maximum
		backoff = min(firstBackoff<<doublings, maxBackoff)
	}
	return max(backoff, min(asked, maxRetryAfter))
}

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*channel.SendError](err); ok {
		return e.RetryAfter
	}
	return 0
}
