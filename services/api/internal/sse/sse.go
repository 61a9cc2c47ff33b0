// Package sse writes server-sent events to clients that may read slowly or go away.
package sse

import (
	"fmt"
	"net/http"
	"time"
)

// Writer writes one response. It is used by one goroutine.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	opened  bool
}

// New returns a Writer that gives the client timeout to take what is written.
func New(w http.ResponseWriter, timeout time.Duration) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Open sends the headers, once. The server's deadline for reading a request ends with the request and does not matter
// here.
func (s *Writer) Open() {
	if s.opened {
		return
	}
	s.opened = true
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache, no-transform")
	header.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
	_ = s.control.Flush() // the next write fails too
}

// Opened reports whether the response has begun.
func (s *Writer) Opened() bool { return s.opened }

// Ping writes a comment, so that nobody between takes a quiet stream for a dead one.
func (s *Writer) Ping() error { return s.Write([]byte(": ping\n\n")) }

// Write sends raw at once, or fails if the client does not take it in time.
func (s *Writer) Write(raw []byte) error {
	s.Open()
	if err := s.control.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if _, err := s.w.Write(raw); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("write event: %w", err)
	}
	return nil
}
