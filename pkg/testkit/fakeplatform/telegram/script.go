package telegram

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Answer replaces what one request gets. The zero value answers as usual, so that a later request can be meant.
type Answer struct {
	// Code is the HTTP status and error_code of a refusal, Description its text (a usual one by default).
	Code        int
	Description string
	// RetryAfter and MigrateTo are parameters of the refusal; they set Code to 429 and 400 where it is 0.
	RetryAfter int
	MigrateTo  int64
	// Raw is the whole body of the answer, which need not be JSON: that of a proxy.
	Raw string
	// Hang keeps the request open until the caller or the server gives up, Reset cuts the connection.
	Hang, Reset bool
	// Keep: the request takes effect all the same; its answer is what gets lost.
	Keep bool
	// Until, if not nil, holds the request back until it is closed.
	Until <-chan struct{}
}

// passes: nothing is scripted but, perhaps, a delay.
func (a Answer) passes() bool { return a.Code == 0 && !a.Hang && !a.Reset }

func (a Answer) refusal() *apiError {
	return &apiError{code: a.Code, text: a.Description, retryAfter: a.RetryAfter, migrateTo: a.MigrateTo}
}

func (a Answer) withDefaults() Answer {
	switch {
	case a.RetryAfter != 0:
		a.Code = cmp.Or(a.Code, http.StatusTooManyRequests)
		a.Description = cmp.Or(a.Description, fmt.Sprintf("Too Many Requests: retry after %d", a.RetryAfter))
	case a.MigrateTo != 0:
		a.Code = cmp.Or(a.Code, http.StatusBadRequest)
		a.Description = cmp.Or(a.Description, "Bad Request: group chat was upgraded to a supergroup chat")
	case a.Raw != "":
		a.Code = cmp.Or(a.Code, http.StatusBadGateway)
	case a.Code != 0:
		a.Description = cmp.Or(a.Description, http.StatusText(a.Code))
	}
	if a.Until == nil {
		open := make(chan struct{})
		close(open)
		a.Until = open
	}
	return a
}

// Script sets the answers to the next calls of a method, in order; after them it works as usual.
func (s *Server) Script(method string, answers ...Answer) { s.script(strings.ToLower(method), answers) }

// ScriptChat does the same for the next calls of any method in a chat. It comes after what is scripted for the method.
func (s *Server) ScriptChat(chat int64, answers ...Answer) {
	s.script(strconv.FormatInt(chat, 10), answers)
}

func (s *Server) script(key string, answers []Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[key] = append(s.scripts[key], answers...)
}

// Request is a call that was received, whatever was answered.
type Request struct {
	Method string
	// Chat is 0 for methods that name none.
	Chat int64
	// Args are the arguments as in a form: what is no string is JSON. Uploads are not among them.
	Args map[string]string
	At   time.Time
}

// Requests returns the calls so far in order of arrival, only those of the given methods if there are any.
func (s *Server) Requests(methods ...string) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Request
	for _, r := range s.log {
		if len(methods) == 0 || slices.Contains(methods, r.Method) {
			out = append(out, r)
		}
	}
	return out
}

// note logs a call and decides about its answer.
func (s *Server) note(c *call) Answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, Request{Method: c.name, Chat: c.number("chat_id"), Args: c.args, At: c.at})
	for _, key := range []string{strings.ToLower(c.name), c.args["chat_id"]} {
		if next := s.scripts[key]; len(next) > 0 {
			s.scripts[key] = next[1:]
			return next[0].withDefaults()
		}
	}
	return Answer{}.withDefaults()
}
