// Package telegram is a double of the Bot API server: the real wire protocol of the methods that Hermes uses, with the
// limits, error texts and conflicts of the hosted server, and a transcript of what a person sees. It runs in tests and
// beside a local Hermes.
//
// Every chat id is an open chat: positive ids are private chats, ids of the form -100… supergroups, other negative ids
// groups. People write with [Server.Say] and its relatives, or with [Server.Push], which takes raw updates. Failures are
// scripted with [Server.Script]. Safe for concurrent use.
package telegram

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The bot of a server with no other options.
const (
	DefaultToken    = "999000111:AAtest-token_of-the-double_0123456789"
	DefaultUsername = "agent_bot"
)

// Options of a server.
type Options struct {
	// Addr is 127.0.0.1:0, a free port, by default.
	Addr string
	// Token and Username are those of the only bot.
	Token, Username string
	// ChatRate, if set, answers 429 to messages and edits beyond it in one chat.
	ChatRate Rate
	// WebhookRetry is the pause before a refused update is sent to the webhook again, 100 ms by default.
	WebhookRetry time.Duration
}

// Server is one Bot API server with one bot.
type Server struct {
	opts     Options
	botID    int64
	methods  map[string]method
	server   *http.Server
	listener net.Listener
	hooks    *http.Client
	// life ends at Close.
	life    context.Context //nolint:containedctx // the life of the goroutines that the server owns
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	chats   map[int64]*chat
	files   map[string]*file
	queries map[string]*query
	scripts map[string][]Answer
	log     []Request
	updates updates
}

// Start listens; Close ends it.
func Start(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	id, _, _ := strings.Cut(o.Token, ":")
	botID, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("telegram double: token must begin with the id of the bot: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("telegram double: %w", err)
	}
	s := &Server{
		opts: o, botID: botID, methods: methods(), listener: listener,
		hooks: &http.Client{Transport: &http.Transport{}, Timeout: time.Minute},
		chats: map[int64]*chat{}, files: map[string]*file{}, queries: map[string]*query{}, scripts: map[string][]Answer{},
		updates: newUpdates(),
	}
	// Up to Close, not to the end of Start.
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second}
	s.running.Go(func() {
		_ = s.server.Serve(listener) // always ErrServerClosed after Close
	})
	s.running.Go(s.deliverWebhooks)
	return s, nil
}

// New starts a server that ends with the test.
func New(tb testing.TB) *Server {
	tb.Helper()
	return NewWith(tb, Options{})
}

// NewWith is New with options.
func NewWith(tb testing.TB, o Options) *Server {
	tb.Helper()
	s, err := Start(tb.Context(), o)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func (o Options) withDefaults() Options {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.Token == "" {
		o.Token = DefaultToken
	}
	if o.Username == "" {
		o.Username = DefaultUsername
	}
	if o.WebhookRetry == 0 {
		o.WebhookRetry = 100 * time.Millisecond
	}
	return o
}

// URL is the address that takes the place of https://api.telegram.org.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Token is that of the bot.
func (s *Server) Token() string { return s.opts.Token }

// BotID is the user id of the bot.
func (s *Server) BotID() int64 { return s.botID }

// Close cuts open requests and waits until nothing runs any more. It may be called twice.
func (s *Server) Close() error {
	s.end()
	err := s.server.Close()
	s.running.Wait()
	s.hooks.CloseIdleConnections()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("telegram double: %w", err)
	}
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if path, ok := strings.CutPrefix(r.URL.Path, "/file/bot"+s.opts.Token+"/"); ok {
		s.download(w, path)
		return
	}
	token, name, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	switch {
	case !ok || !strings.HasPrefix(r.URL.Path, "/bot"):
		writeError(w, &apiError{code: http.StatusNotFound, text: "Not Found"})
	case token != s.opts.Token:
		writeError(w, &apiError{code: http.StatusUnauthorized, text: "Unauthorized"})
	default:
		s.call(w, r, name)
	}
}
