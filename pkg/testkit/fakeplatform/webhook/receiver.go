// Package webhook is the far end of the generic webhook platform: a receiver that checks signatures, answers as it is
// told to, and keeps a transcript of what it was sent. It runs in tests and beside a local Hermes, where
// GET /transcript shows what arrived.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hermes-runtime/hermes/pkg/channel/webhook"
)

// Received is one request, whatever was answered.
type Received struct {
	At           time.Time `json:"at"`
	ID           string    `json:"webhook_id"`
	Conversation string    `json:"conversation"`
	Thread       string    `json:"thread,omitempty"`
	RunID        string    `json:"run_id,omitempty"`
	Text         string    `json:"text"`
	// Status is what was answered, 0 if the connection was cut or hangs.
	Status int `json:"status"`
	// Shown: accepted with 2xx, and no earlier request of the same ID was.
	Shown bool `json:"shown"`
	// Signed: the signature is valid.
	Signed bool `json:"signed"`
	// Body is the raw JSON.
	Body json.RawMessage `json:"body"`
}

// Answer is what one request gets.
type Answer struct {
	// Status defaults to 204.
	Status int
	Header http.Header
	// Hang keeps the request open until the sender or the receiver gives up, Reset cuts the connection once it is read.
	Hang, Reset bool
	// Keep counts the message as shown although the answer is no success: the receiver worked, its answer was lost.
	Keep bool
}

// Receiver is safe for concurrent use.
type Receiver struct {
	key      webhook.Key
	server   *http.Server
	listener net.Listener
	done     chan struct{}

	mu      sync.Mutex
	answers []Answer
	log     []Received
	shown   map[string]bool
}

// Start listens on addr ("127.0.0.1:0" picks a port) for messages that are signed with secret.
func Start(ctx context.Context, addr, secret string) (*Receiver, error) {
	key, err := webhook.ParseKey(secret)
	if err != nil {
		return nil, fmt.Errorf("webhook receiver: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("webhook receiver: %w", err)
	}
	r := &Receiver{key: key, listener: listener, done: make(chan struct{}), shown: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /transcript", r.showTranscript)
	mux.HandleFunc("POST /", r.receive)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(listener) // always ErrServerClosed after Close
	}()
	return r, nil
}

// URL is where replies are posted.
func (r *Receiver) URL() string { return "http://" + r.listener.Addr().String() + "/replies" }

// Close refuses connections from now on and cuts open ones. It may be called twice.
func (r *Receiver) Close() error {
	err := r.server.Close()
	<-r.done
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("webhook receiver: %w", err)
	}
	return nil
}

// Answer scripts the next answers, in order; after them everything is accepted.
func (r *Receiver) Answer(answers ...Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, answers...)
}

// Transcript is every request so far, in order of arrival.
func (r *Receiver) Transcript() []Received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Received(nil), r.log...)
}

// Shown is what a person sees in a conversation: each accepted message once, in order of arrival.
func (r *Receiver) Shown(conversation string) []string {
	var texts []string
	for _, m := range r.Transcript() {
		if m.Shown && m.Conversation == conversation {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(io.LimitReader(req.Body, 4<<20))
	if err != nil {
		return // the sender is gone
	}
	a := r.note(req.Header, body)
	switch {
	case a.Hang:
		<-req.Context().Done()
	case a.Reset:
		panic(http.ErrAbortHandler) // cuts the connection without a log line
	default:
		for k, v := range a.Header {
			w.Header()[k] = v
		}
		w.WriteHeader(a.Status)
	}
}

// note logs a request and decides its answer.
func (r *Receiver) note(header http.Header, body []byte) Answer {
	m := Received{At: time.Now(), ID: header.Get(webhook.HeaderID), Body: body}
	_ = json.Unmarshal(body, &m) // what is no JSON stands in Body and is not signed by us
	m.Signed = webhook.Verify([]webhook.Key{r.key}, header, body, m.At) == nil
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.next()
	if !m.Signed {
		a = Answer{Status: http.StatusUnauthorized}
	}
	if !a.Hang && !a.Reset {
		m.Status = a.Status
	}
	kept := a.Keep || m.Status >= 200 && m.Status < 300
	m.Shown = kept && !r.shown[m.ID]
	r.shown[m.ID] = r.shown[m.ID] || kept
	r.log = append(r.log, m)
	return a
}

func (r *Receiver) next() Answer {
	if len(r.answers) == 0 {
		return Answer{Status: http.StatusNoContent}
	}
	a := r.answers[0]
	r.answers = r.answers[1:]
	if a.Status == 0 {
		a.Status = http.StatusNoContent
	}
	return a
}

func (r *Receiver) showTranscript(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(r.Transcript()) // the reader hung up: nobody to tell
}
