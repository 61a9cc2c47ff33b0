// Package timer reads what a timer of the store means: when it fires next, and which message it sends.
//
// A spec is "once", or a cron expression of five fields in UTC; "CRON_TZ=Europe/Berlin 0 9 * * 1-5" names a time zone. The
// body is the message that is sent, without an identity of its own.
package timer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
)

// Once is the spec of a timer that fires one time.
const Once = "once"

// ErrSpec: a spec is neither Once nor a cron expression.
var ErrSpec = errors.New("neither once nor a cron expression of five fields")

// Next returns when a timer fires after now: the zero time for one that has fired once. Fires that were missed are not
// made up for.
func Next(spec string, now time.Time) (time.Time, error) {
	if spec == Once {
		return time.Time{}, nil
	}
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return time.Time{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return schedule.Next(now.UTC()), nil
}

// New returns a timer that sends m. at is when it fires first, or the zero time for the next time of the spec.
func New(id, spec string, at time.Time, m *event.Message, now time.Time) (store.Timer, error) {
	next, err := Next(spec, now)
	if err != nil {
		return store.Timer{}, err
	}
	if !at.IsZero() {
		next = at.UTC()
	}
	if next.IsZero() {
		return store.Timer{}, errors.New("never fires")
	}
	body, err := json.Marshal(m)
	if err != nil {
		return store.Timer{}, fmt.Errorf("encode message of timer: %w", err)
	}
	return store.Timer{ID: id, SKey: m.SKey, Tenant: m.Tenant, Spec: spec, Body: body, NextAt: next}, nil
}

// Message returns the bus form of the message that a due timer sends, and its identity: the same for everybody who fires
// it at that time.
func Message(t store.Timer, now time.Time) (data []byte, uid string, err error) {
	var m event.Message
	if err := json.Unmarshal(t.Body, &m); err != nil {
		return nil, "", fmt.Errorf("decode message of timer: %w", err)
	}
	sum := sha256.Sum256([]byte("timer\x00" + t.Tenant + "\x00" + t.ID + "\x00" + t.NextAt.UTC().Format(time.RFC3339Nano)))
	m.UID = hex.EncodeToString(sum[:16])
	m.PlatformMessageID, m.ReceivedAt = "timer:"+t.ID, now.UTC()
	if err := m.Validate(); err != nil {
		return nil, "", fmt.Errorf("message of timer: %w", err)
	}
	data, err = event.Encode(&m)
	return data, m.UID, err
}
