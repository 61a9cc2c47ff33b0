// Package submit hands the messages of clients over to the engine and tells what became of them.
//
// A message is accepted once the broker has stored it; the key that its client chose is its identity for ever. The same
// key with another body is a conflict, which only the store can tell, by the fingerprint of the body that it keeps:
//
//   - before the message is published, if the store knows the key and answers within a second;
//   - after, if the broker has seen the key within its duplicate window and the store has it a second later;
//   - always where the client waits for the answer.
//
// While the store is down a conflict may thus be answered as a duplicate. Nothing is stored twice in any case: the first
// body stays.
package submit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hermes-runtime/hermes/pkg/accept"
	"github.com/hermes-runtime/hermes/pkg/event"
	"github.com/hermes-runtime/hermes/pkg/store"
	"github.com/hermes-runtime/hermes/services/api/internal/runapi"
	"github.com/hermes-runtime/hermes/services/internal/httpapi"
)

// KeyHeader is where clients choose the identity of a message.
const KeyHeader = "Idempotency-Key"

// Submitter accepts messages. It is safe for concurrent use.
type Submitter struct {
	Acceptor runapi.Acceptor
	Runs     runapi.Deps
}

// Submission is a message on its way.
type Submission struct {
	*event.Message
	// Keyed: the client chose the key, so that the message may be a repetition. Others are new.
	Keyed bool
}

// Accepted is what is known about a message once it is stored.
type Accepted struct {
	ID string
	// RunID is "" while it is not known which run answers the message, or if none does.
	RunID string
	// Duplicate: an earlier request has stored it.
	Duplicate bool
}

// storeWait bounds what a client waits for the store that does not want to wait for the answer.
const storeWait = time.Second

// Accept publishes m unless the store has it. It tells conflicts as far as the store tells them in time. rename maps the
// fields of a message that are wrong to those of the request, see [httpapi.FromAccept].
func (s Submitter) Accept(ctx context.Context, m Submission, rename map[string]string) (Accepted, error) {
	if m.Keyed {
		if sub, err := within(ctx, m, s.Runs.Submission); err == nil {
			return answerTo(m, sub, true)
		}
	}
	receipt, err := s.Acceptor.Accept(ctx, m.Message)
	if err != nil {
		return Accepted{}, httpapi.FromAccept(err, rename)
	}
	if receipt.Duplicate {
		if sub, err := within(ctx, m, s.Runs.AwaitSubmission); err == nil {
			return answerTo(m, sub, true)
		}
	}
	return answerTo(m, store.Submission{}, receipt.Duplicate)
}

func within(
	ctx context.Context, m Submission, look func(context.Context, runapi.Target) (store.Submission, error),
) (store.Submission, error) {
	ctx, cancel := context.WithTimeout(ctx, storeWait)
	defer cancel()
	return look(ctx, m.Target())
}

// Check waits until m is admitted and returns the conflict that its key is in, if any. What is new is in none.
func (s Submitter) Check(ctx context.Context, m Submission) error {
	if !m.Keyed {
		return nil
	}
	sub, err := s.Runs.AwaitSubmission(ctx, m.Target())
	if err != nil {
		return err
	}
	return checkSame(m, sub)
}

// Target is m as it is followed.
func (m Submission) Target() runapi.Target { return runapi.Target{SKey: m.SKey, UID: m.UID} }

// answerTo tells what the store knows of m; the zero Submission if that is nothing.
func answerTo(m Submission, sub store.Submission, duplicate bool) (Accepted, error) {
	if sub.Body != nil {
		if err := checkSame(m, sub); err != nil {
			return Accepted{}, err
		}
	}
	a := Accepted{ID: accept.MessageID(m.SKey, m.UID), Duplicate: duplicate}
	if sub.Run.ID != uuid.Nil {
		a.RunID = sub.Run.ID.String()
	}
	return a, nil
}

// checkSame returns the 409 of a key that was used with another body.
func checkSame(m Submission, sub store.Submission) error {
	var stored event.Message
	if err := json.Unmarshal(sub.Body, &stored); err != nil {
		return fmt.Errorf("decode inbox body: %w", err)
	}
	if stored.Fingerprint == m.Fingerprint {
		return nil
	}
	return &httpapi.Error{
		Status: http.StatusConflict, Type: httpapi.TypeConflict, Param: KeyHeader, Code: "idempotency_conflict",
		Message: KeyHeader + ": was used with another body",
	}
}

// Fingerprint is the same for bodies that differ in form only; content is what was read of the body.
func Fingerprint(content any) string {
	raw, err := json.Marshal(content)
	if err != nil { // strings and integers only: cannot fail
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// maxKeyBytes bounds a key.
const maxKeyBytes = 255

// Key returns the key that the client chose, or a new one.
func Key(r *http.Request) (key string, chosen bool, err error) {
	values := r.Header.Values(KeyHeader)
	if len(values) > 0 {
		return values[0], true, checkKey(values)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return "", false, fmt.Errorf("make message id: %w", err)
	}
	return id.String(), false, nil
}

func checkKey(values []string) error {
	key := values[0]
	switch {
	case len(values) > 1:
		return httpapi.Invalid(KeyHeader, KeyHeader+": is there more than once")
	case key == "":
		return httpapi.Invalid(KeyHeader, KeyHeader+": must not be empty")
	case len(key) > maxKeyBytes:
		return httpapi.Invalid(KeyHeader, fmt.Sprintf("%s: %d bytes, at most %d are allowed", KeyHeader, len(key), maxKeyBytes))
	case strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }):
		return httpapi.Invalid(KeyHeader, KeyHeader+": only printable ASCII characters are allowed")
	default:
		return nil
	}
}
