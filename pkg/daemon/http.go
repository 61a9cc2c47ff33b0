package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// HTTPServer serves one handler on one address, as a Component.
type HTTPServer struct {
	addr     string
	server   *http.Server
	logger   *slog.Logger
	listener net.Listener
	done     chan struct{}
}

// NewHTTPServer serves handler on addr; port 0 picks a free one.
func NewHTTPServer(addr string, handler http.Handler, logger *slog.Logger) *HTTPServer {
	return &HTTPServer{
		addr:   addr,
		logger: logger,
		server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second,
			ReadTimeout:       60 * time.Second,
			IdleTimeout:       120 * time.Second,
			MaxHeaderBytes:    64 << 10,
			ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		},
	}
}

// Start listens; requests are served when it returns.
func (s *HTTPServer) Start(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.addr, err)
	}
	s.listener, s.done = listener, make(chan struct{})
	go func() {
		defer close(s.done)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.logger.ErrorContext(context.WithoutCancel(ctx), "http server ended", "addr", s.addr, "err", err)
		}
	}()
	return nil
}

// Addr is the address in use, once started.
func (s *HTTPServer) Addr() string {
	if s.listener == nil {
		return s.addr
	}
	return s.listener.Addr().String()
}

// Stop waits for requests until ctx ends, then cuts them.
func (s *HTTPServer) Stop(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("shut down http on %s: %w", s.addr, err), s.server.Close())
	}
	<-s.done
	return err
}
