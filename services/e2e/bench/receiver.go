package main

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

// receiver is where replies are posted. It checks their signatures and hands each to whoever waits for it. Unlike
// testkit's it keeps nothing but the ids that it has seen.
type receiver struct {
	key      webhook.Key
	listener net.Listener
	server   *http.Server
	done     chan struct{}

	mu      sync.Mutex
	waiting map[string]chan<- reply
	seen    map[string]bool
	strange []error
}

// reply is what arrived for a conversation.
type reply struct {
	text string
	at   time.Time
}

func startReceiver(ctx context.Context) (*receiver, error) {
	key, err := webhook.ParseKey(outSecret)
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	r := &receiver{
		key: key, listener: listener, done: make(chan struct{}),
		waiting: map[string]chan<- reply{}, seen: map[string]bool{},
	}
	r.server = &http.Server{Handler: http.HandlerFunc(r.receive), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(r.done)
		_ = r.server.Serve(listener) // always ErrServerClosed after close
	}()
	return r, nil
}

func (r *receiver) url() string { return "http://" + r.listener.Addr().String() + "/" }

func (r *receiver) close() error {
	err := r.server.Close()
	<-r.done
	return err
}

// expect returns where the next reply of a conversation will come. There is one at a time.
func (r *receiver) expect(conversation string) <-chan reply {
	ch := make(chan reply, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting[conversation] = ch
	return ch
}

func (r *receiver) forget(conversation string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, conversation)
}

func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	const maxBody = 1 << 20
	body, err := io.ReadAll(io.LimitReader(req.Body, maxBody))
	at := time.Now()
	if err != nil {
		return // the sender is gone and tries again
	}
	var m struct {
		MessageID    string `json:"message_id"`
		Conversation string `json:"conversation"`
		Text         string `json:"text"`
	}
	if err := errors.Join(webhook.Verify([]webhook.Key{r.key}, req.Header, body, at), json.Unmarshal(body, &m)); err != nil {
		r.note(err)
		http.Error(w, "refused", http.StatusUnauthorized)
		return
	}
	w.WriteHeader(http.StatusNoContent)
	r.deliver(m.MessageID, m.Conversation, reply{text: m.Text, at: at})
}

func (r *receiver) deliver(id, conversation string, got reply) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		r.strange = append(r.strange, fmt.Errorf("reply %s came twice", id))
		return
	}
	r.seen[id] = true
	ch := r.waiting[conversation]
	if ch == nil {
		r.strange = append(r.strange, fmt.Errorf("reply %s came, and nobody waits for it", id))
		return
	}
	delete(r.waiting, conversation)
	ch <- got
}

func (r *receiver) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.strange = append(r.strange, err)
}

// problems returns what was wrong with replies since the last call.
func (r *receiver) problems() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.strange
	r.strange = nil
	return found
}
